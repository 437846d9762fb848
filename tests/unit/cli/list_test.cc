#include "cli/list.h"

#include <gtest/gtest.h>

#include "base/files/mapped_file.h"
#include "paths.h"

namespace quire {
namespace {

TEST(ListOfFamilies, IsTheTableInTheDocuments) {
  EXPECT_NE(read_text_file(source_dir() / "docs/models.md").find(families_markdown()), std::string::npos)
      << "replace the table of docs/models.md by the output of `quire list --families`:\n"
      << families_markdown();
}

TEST(ListOfFormats, IsTheTablesInTheDocuments) {
  const std::string page = read_text_file(source_dir() / "docs/formats.md");
  for (const std::string& table : {gguf_types_markdown(), quantization_methods_markdown()}) {
    EXPECT_NE(page.find(table), std::string::npos)
        << "replace the table of docs/formats.md by this one of `quire list --formats`:\n"
        << table;
  }
}

}  // namespace
}  // namespace quire
