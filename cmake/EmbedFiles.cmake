# Writes a C++ source with the content of the files in FOLDER (quire::dashboard_files()) to OUT, sorted by name:
#   cmake -DOUT=FILE.cc -DFOLDER=FOLDER -P EmbedFiles.cmake
file(GLOB paths RELATIVE ${FOLDER} ${FOLDER}/*)
list(SORT paths)
set(arrays "")
set(table "")
set(count 0)
foreach(path ${paths})
  file(READ ${FOLDER}/${path} bytes HEX)
  string(LENGTH "${bytes}" digits)
  if(digits EQUAL 0)
    message(FATAL_ERROR "${FOLDER}/${path} is empty")
  endif()
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" literal "${bytes}")
  math(EXPR size "${digits} / 2")
  string(APPEND arrays "constexpr char kFile${count}[] =\n    \"${literal}\";\n")
  string(APPEND table "    {\"${path}\", {kFile${count}, ${size}}},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(WRITE ${OUT} "// Made by cmake/EmbedFiles.cmake.
#include \"server/endpoints/dashboard_files.h\"

namespace quire {
namespace {

${arrays}
constexpr DashboardFile kFiles[] = {
${table}};

}  // namespace

std::span<const DashboardFile> dashboard_files() { return kFiles; }

}  // namespace quire
")
