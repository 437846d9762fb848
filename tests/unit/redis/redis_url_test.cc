#include "redis/redis_url.h"

#include <gtest/gtest.h>

#include "error_of.h"

namespace quire {
namespace {

TEST(RedisUrl, ReadsEachPart) {
  const RedisUrl all = parse_redis_url("rediss://us%40er:p%3Aa%2Fss@cache.example:6380/12");
  EXPECT_TRUE(all.tls);
  EXPECT_EQ(all.user, "us@er");
  EXPECT_EQ(all.password, "p:a/ss");
  EXPECT_EQ(all.host, "cache.example");
  EXPECT_EQ(all.port, "6380");
  EXPECT_EQ(all.database, 12);
  const RedisUrl least = parse_redis_url("redis://localhost");
  EXPECT_FALSE(least.tls);
  EXPECT_EQ(least.user + least.password, "");
  EXPECT_EQ(least.port, "6379");
  EXPECT_EQ(least.database, 0);
  const RedisUrl address = parse_redis_url("redis://:secret@[::1]:7000/");
  EXPECT_EQ(address.host, "::1");
  EXPECT_EQ(address.port, "7000");
  EXPECT_EQ(address.password, "secret");
}

TEST(RedisUrl, ShowsNeitherUserNorPassword) {
  EXPECT_EQ(public_text(parse_redis_url("rediss://user:secret@host/3")), "rediss://host:6379/3");
  EXPECT_EQ(public_text(parse_redis_url("redis://:secret@[::1]:7000")), "redis://[::1]:7000/0");
}

TEST(RedisUrl, RefusesWhatIsNotAUrlWithoutShowingIt) {
  for (const char* const wrong :
       {"redis://", "redis://:secret@", "redis://secret@host", "redis://user:secret", "redis://host:0/secret",
        "redis://host:99999999", "redis://host/-1", "redis://host/secret", "redis://host/1secret", "redis://se cret",
        "redis://[::1", "redis://a:secret:b"}) {
    const std::string message = error_of([&] { parse_redis_url(wrong); });
    EXPECT_NE(message, "") << wrong;
    EXPECT_EQ(message.find("secret"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace quire
