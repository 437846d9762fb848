#include "cli/list.h"

#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "paths.h"

namespace quire {
namespace {

TEST(ListOfFamilies, IsTheTableInTheDocuments) {
  EXPECT_NE(read_text_file(source_dir() / "docs/models.md").find(families_markdown()), std::string::npos)
      << "replace the table of docs/models.md by the output of `quire list --families`:\n"
      << families_markdown();
}

}  // namespace
}  // namespace quire
