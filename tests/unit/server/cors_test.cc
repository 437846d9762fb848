#include "server/http/cors.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace quire {
namespace {

constexpr std::string_view kPage = "https://chat.example.org", kOther = "https://evil.example.org";

TEST(Cors, AddsNoHeadersWithoutAllowedOriginsOrWithoutAnOrigin) {
  EXPECT_EQ(cors_lines({}, kPage), "");
  EXPECT_EQ(cors_lines({.origins = {"*"}}, ""), "");
  EXPECT_EQ(preflight({}, kPage, "POST", ""), std::nullopt);
  EXPECT_EQ(preflight({.origins = {"*"}}, "", "POST", ""), std::nullopt);
  EXPECT_EQ(preflight({.origins = {"*"}}, kPage, "", ""), std::nullopt);  // a plain OPTIONS
}

TEST(Cors, AllowsEveryPageWithAStar) {
  EXPECT_EQ(cors_lines({.origins = {"*"}}, kOther),
            "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: X-Request-Id\r\n");
}

TEST(Cors, NamesTheOriginIfOnlySomeAreAllowed) {
  EXPECT_EQ(cors_lines({.origins = {"https://a.example.org", std::string(kPage)}}, kPage),
            "Vary: Origin\r\nAccess-Control-Allow-Origin: https://chat.example.org\r\n"
            "Access-Control-Expose-Headers: X-Request-Id\r\n");
  EXPECT_EQ(cors_lines({.origins = {std::string(kPage)}}, kOther), "Vary: Origin\r\n");
  EXPECT_EQ(cors_lines({.origins = {std::string(kPage)}, .credentials = true}, kPage),
            "Vary: Origin\r\nAccess-Control-Allow-Origin: https://chat.example.org\r\n"
            "Access-Control-Allow-Credentials: true\r\nAccess-Control-Expose-Headers: X-Request-Id\r\n");
}

TEST(Cors, RefusesCredentialsForEveryPage) {
  EXPECT_THROW(check({.origins = {std::string(kPage), "*"}, .credentials = true}), Error);
  check({.origins = {std::string(kPage)}, .credentials = true});
  check({.origins = {"*"}});
  check({.credentials = true});
}

TEST(Cors, AnswersPreflights) {
  const CorsOptions any{.origins = {"*"}};
  const auto allowed = preflight(any, kPage, "POST", "authorization, content-type");
  ASSERT_TRUE(allowed && allowed->allowed);
  using Header = std::pair<std::string, std::string>;
  EXPECT_EQ(allowed->headers[0], Header("Access-Control-Allow-Methods", "GET, HEAD, POST"));
  EXPECT_EQ(allowed->headers[2], Header("Access-Control-Allow-Headers", "authorization, content-type"));

  const CorsOptions some{.origins = {std::string(kPage)}, .methods = {"GET", "POST"}, .headers = {"Content-Type"}};
  EXPECT_TRUE(preflight(some, kPage, "POST", "content-type")->allowed);
  EXPECT_TRUE(preflight(some, kPage, "GET", "")->allowed);
  EXPECT_FALSE(preflight(some, kOther, "POST", "")->allowed);
  EXPECT_FALSE(preflight(some, kPage, "DELETE", "")->allowed);
  EXPECT_FALSE(preflight(some, kPage, "POST", "content-type,authorization")->allowed);
}

}  // namespace
}  // namespace quire
