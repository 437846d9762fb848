#include "server/http/api_keys.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "unit/server/temporary_files.h"

namespace quire {
namespace {

TEST(ApiKeys, AcceptsGivenKeysAndKeysFromTheFile) {
  const TemporaryFolder folder;
  const ApiKeys keys({"sk-given"}, folder.write("keys", "# who\n\n  sk-plain \r\nteam-a: sk-a\nb.2:sk-b#1\n"));
  EXPECT_TRUE(keys.required());
  EXPECT_EQ(keys.name_of("sk-a"), "team-a");
  EXPECT_EQ(keys.name_of("sk-b#1"), "b.2");
  // SHA-256 of the key: the name is the same in every process.
  EXPECT_EQ(keys.name_of("sk-given"), ApiKeys({"x", "sk-given"}, "").name_of("sk-given"));
  EXPECT_EQ(ApiKeys({"abc"}, "").name_of("abc"), "key-ba7816bf");
  EXPECT_TRUE(keys.name_of("sk-plain")->starts_with("key-"));
  for (const char* wrong : {"", "sk-", "sk-aa", "SK-A", "team-a", "team-a:sk-a", "sk-a ", "# who", "sk-plain\r"}) {
    EXPECT_EQ(keys.name_of(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(keys.name_of(std::string(100'000, 'x')), std::nullopt);
}

TEST(ApiKeys, RequiresNoneIfNoneAreGiven) {
  const ApiKeys keys({}, "");
  EXPECT_FALSE(keys.required());
  EXPECT_EQ(keys.name_of(""), std::nullopt);
}

TEST(ApiKeys, KeepsItsKeysIfTheFileCannotBeReloaded) {
  const TemporaryFolder folder;
  const std::string file = folder.write("keys", "old:sk-old\n");
  ApiKeys keys({"sk-given"}, file);
  folder.write("keys", "new:sk-new\nother:sk-other\n");
  EXPECT_EQ(keys.reload(), 3u);
  EXPECT_EQ(keys.name_of("sk-old"), std::nullopt);
  EXPECT_EQ(keys.name_of("sk-new"), "new");
  EXPECT_TRUE(keys.name_of("sk-given"));
  folder.write("keys", "new:sk-newer\nbad name:sk\n");
  EXPECT_THROW(keys.reload(), Error);
  EXPECT_EQ(keys.name_of("sk-new"), "new");
  std::filesystem::remove(file);
  EXPECT_THROW(keys.reload(), Error);
  EXPECT_EQ(keys.name_of("sk-new"), "new");
}

TEST(ApiKeys, NamesTheWrongLineButNeverTheKey) {
  const TemporaryFolder folder;
  for (const char* wrong : {"good:sk-1\n:sk-secret\n", "good:sk-1\nbad name:sk-secret\n", "good:sk-1\nsk secret\n",
                            "good:sk-1\nname:\n", "good:sk-1\nsk-secret\xff\n"}) {
    try {
      ApiKeys({}, folder.write("keys", wrong));
      FAIL() << wrong;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find(folder.path("keys") + ":2:"), std::string::npos) << what;
      EXPECT_EQ(what.find("secret"), std::string::npos) << what;
    }
  }
  EXPECT_THROW(ApiKeys({}, folder.write("keys", "# nothing\n")), Error);
  EXPECT_THROW(ApiKeys({}, folder.path("missing")), Error);
  EXPECT_THROW(ApiKeys({}, folder.path(".")), Error);
  EXPECT_THROW(ApiKeys({""}, ""), Error);
  EXPECT_THROW(ApiKeys({"a b"}, ""), Error);
}

TEST(ApiKeys, FindsTheKeyInTheHeader) {
  EXPECT_EQ(bearer_key("Bearer sk-1"), "sk-1");
  EXPECT_EQ(bearer_key("bEARER   sk-1 "), "sk-1");
  for (const char* other : {"", "Bearer", "Bearer ", "Bearersk-1", "Basic c2s=", "sk-1"}) {
    EXPECT_EQ(bearer_key(other), "") << other;
  }
}

}  // namespace
}  // namespace quire
