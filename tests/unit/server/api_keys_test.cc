#include "server/http/api_keys.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "unit/server/temporary_files.h"

namespace quire {
namespace {

std::optional<std::string> name_of(const ApiKeys& keys, std::string_view key) {
  const auto tenant = keys.tenant_of(key);
  return tenant ? std::optional(tenant->name) : std::nullopt;
}

TEST(ApiKeys, AcceptsGivenKeysAndKeysFromTheFile) {
  const TemporaryFolder folder;
  const ApiKeys keys({"sk-given"}, folder.write("keys", "# who\n\n  sk-plain \r\nteam-a: sk-a\nb.2:sk-b#1\n"));
  EXPECT_TRUE(keys.required());
  EXPECT_EQ(name_of(keys, "sk-a"), "team-a");
  EXPECT_EQ(name_of(keys, "sk-b#1"), "b.2");
  // SHA-256 of the key: the name is the same in every process.
  EXPECT_EQ(name_of(keys, "sk-given"), name_of(ApiKeys({"x", "sk-given"}, ""), "sk-given"));
  EXPECT_EQ(name_of(ApiKeys({"abc"}, ""), "abc"), "key-ba7816bf");
  EXPECT_TRUE(name_of(keys, "sk-plain")->starts_with("key-"));
  for (const char* wrong : {"", "sk-", "sk-aa", "SK-A", "team-a", "team-a:sk-a", "sk-a ", "# who", "sk-plain\r"}) {
    EXPECT_EQ(name_of(keys, wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(name_of(keys, std::string(100'000, 'x')), std::nullopt);
}

TEST(ApiKeys, RequiresNoneIfNoneAreGiven) {
  const ApiKeys keys({}, "");
  EXPECT_FALSE(keys.required());
  EXPECT_EQ(name_of(keys, ""), std::nullopt);
}

TEST(ApiKeys, KeepsItsKeysIfTheFileCannotBeReloaded) {
  const TemporaryFolder folder;
  const std::string file = folder.write("keys", "old:sk-old\n");
  ApiKeys keys({"sk-given"}, file);
  folder.write("keys", "new:sk-new\nother:sk-other\n");
  EXPECT_EQ(keys.reload(), 3u);
  EXPECT_EQ(name_of(keys, "sk-old"), std::nullopt);
  EXPECT_EQ(name_of(keys, "sk-new"), "new");
  EXPECT_TRUE(name_of(keys, "sk-given"));
  folder.write("keys", "new:sk-newer\nbad name:sk\n");
  EXPECT_THROW(keys.reload(), Error);
  EXPECT_EQ(name_of(keys, "sk-new"), "new");
  std::filesystem::remove(file);
  EXPECT_THROW(keys.reload(), Error);
  EXPECT_EQ(name_of(keys, "sk-new"), "new");
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

TEST(ApiKeys, ReadsTheOperatorsPriorities) {
  const TemporaryFolder folder;
  const ApiKeys keys({"sk-given"}, folder.write("keys",
                                                "chat:sk-a:-5\nbatch: sk-b : 10\nplain:sk-c\nchat:sk:d:-5\n"
                                                "odd:sk:12x\nsk-e\n"));
  const auto priority = [&](std::string_view key) { return keys.tenant_of(key)->priority; };
  EXPECT_EQ(priority("sk-a"), -5);
  EXPECT_EQ(priority("sk:d"), -5);
  EXPECT_EQ(priority("sk-b"), 10);
  EXPECT_EQ(priority("sk:12x"), 0) << "part of the key";
  for (const char* key : {"sk-c", "sk-e", "sk-given"}) EXPECT_EQ(priority(key), 0);
  EXPECT_FALSE(keys.tenant_of("sk-a:-5"));
  for (const char* wrong : {"a:sk:1001\n", "a:sk:99999999999999\n", "a:sk-1:1\na:sk-2:2\n", "a::5\n"})
    EXPECT_THROW(ApiKeys({}, folder.write("keys", wrong)), Error) << wrong;
}

TEST(ApiKeys, KnowWhetherThereAreSeveralTenants) {
  const TemporaryFolder folder;
  EXPECT_FALSE(ApiKeys({}, "").several_tenants());
  EXPECT_FALSE(ApiKeys({"sk-1"}, "").several_tenants());
  EXPECT_FALSE(ApiKeys({}, folder.write("keys", "a:sk-1\na:sk-2\n")).several_tenants());
  EXPECT_TRUE(ApiKeys({"sk-1", "sk-2"}, "").several_tenants());
  EXPECT_TRUE(ApiKeys({"sk-1"}, folder.write("keys", "a:sk-2\n")).several_tenants());
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
