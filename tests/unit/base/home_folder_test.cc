#include "base/files/home_folder.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace quire {
namespace {

// Sets HOME until the test ends.
class Home {
 public:
  explicit Home(const char* value) {
    if (const char* before = std::getenv("HOME")) before_ = before;
    value ? ::setenv("HOME", value, 1) : ::unsetenv("HOME");
  }
  ~Home() { before_ ? ::setenv("HOME", before_->c_str(), 1) : ::unsetenv("HOME"); }

 private:
  std::optional<std::string> before_;
};

TEST(HomeFolder, IsTheVariables) {
  const Home home("/srv/quire");
  EXPECT_EQ(home_folder(), "/srv/quire");
  EXPECT_EQ(cache_folder(), "/srv/quire/.cache/quire");
}

// Services and containers start programs without HOME.
TEST(HomeFolder, IsThatOfThePasswordDatabaseWhereTheVariableIsOfNoUse) {
  const passwd* entry = ::getpwuid(::getuid());
  for (const char* value : {static_cast<const char*>(nullptr), "", ".", "relative/folder"}) {
    const Home home(value);
    if (entry && entry->pw_dir[0] == '/') {
      EXPECT_EQ(home_folder(), entry->pw_dir);
    } else {
      EXPECT_TRUE(home_folder().empty());
      EXPECT_TRUE(cache_folder().empty());
    }
    EXPECT_FALSE(home_folder().is_relative() && !home_folder().empty()) << "nothing belongs into the current folder";
  }
}

}  // namespace
}  // namespace quire
