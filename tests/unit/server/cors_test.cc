#include "server/http/cors.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

constexpr std::string_view kPage = "https://chat.example.org", kOther = "https://evil.example.org",
                           kLoopback = "http://localhost:3000";

// What a server with these options answers.
struct Pages {
  explicit Pages(CorsOptions given) : options(std::move(given)) {}

  std::string lines(std::string_view origin) const { return cors_lines(options, local, origin); }
  std::optional<Preflight> asked(std::string_view origin, std::string_view method,
                                 std::string_view headers = "") const {
    return preflight(options, local, origin, method, headers);
  }
  std::string refusal(std::string_view origin, std::string_view method, std::string_view headers = "") const {
    const auto answer = asked(origin, method, headers);
    return answer ? answer->refusal : "no preflight";
  }

  CorsOptions options;
  LocalHosts local{{"127.0.0.1"}, options.origins};
};

TEST(Cors, AddsNoHeadersWithoutAnOriginAndAllowsNoForeignPageByDefault) {
  EXPECT_EQ(Pages({}).lines(kPage), "Vary: Origin\r\n");
  EXPECT_EQ(Pages({.origins = {"*"}}).lines(""), "");
  EXPECT_EQ(Pages({.origins = {"*"}}).asked("", "POST"), std::nullopt);
  EXPECT_EQ(Pages({.origins = {"*"}}).asked(kPage, ""), std::nullopt);  // a plain OPTIONS
  EXPECT_EQ(Pages({}).refusal(kPage, "POST"),
            "requests from pages of \"https://chat.example.org\" are refused; allow them with --allowed-origins");
}

TEST(Cors, AllowsPagesOfLoopback) {
  for (const CorsOptions& options : {CorsOptions{}, CorsOptions{.origins = {std::string(kPage)}}}) {
    EXPECT_EQ(Pages(options).lines(kLoopback),
              "Vary: Origin\r\nAccess-Control-Allow-Origin: http://localhost:3000\r\n"
              "Access-Control-Expose-Headers: X-Request-Id\r\n");
    EXPECT_EQ(Pages(options).refusal(kLoopback, "POST", "content-type, authorization"), "");
    EXPECT_EQ(Pages(options).refusal("https://127.0.0.1", "GET"), "");
  }
}

TEST(Cors, AllowsEveryPageWithAStar) {
  EXPECT_EQ(Pages({.origins = {"*"}}).lines(kOther),
            "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: X-Request-Id\r\n");
}

TEST(Cors, NamesTheOriginIfOnlySomeAreAllowed) {
  EXPECT_EQ(Pages({.origins = {"https://a.example.org", std::string(kPage)}}).lines(kPage),
            "Vary: Origin\r\nAccess-Control-Allow-Origin: https://chat.example.org\r\n"
            "Access-Control-Expose-Headers: X-Request-Id\r\n");
  EXPECT_EQ(Pages({.origins = {std::string(kPage)}}).lines(kOther), "Vary: Origin\r\n");
  EXPECT_EQ(Pages({.origins = {std::string(kPage)}, .credentials = true}).lines(kPage),
            "Vary: Origin\r\nAccess-Control-Allow-Origin: https://chat.example.org\r\n"
            "Access-Control-Allow-Credentials: true\r\nAccess-Control-Expose-Headers: X-Request-Id\r\n");
}

TEST(Cors, RefusesCredentialsForEveryPage) {
  EXPECT_THROW(check({.origins = {std::string(kPage), "*"}, .credentials = true}), Error);
  EXPECT_THROW(check({.origins = {"https://*"}, .credentials = true}), Error);
  check({.origins = {std::string(kPage), "chrome-extension://*"}, .credentials = true});
  check({.origins = {"*"}});
  check({.credentials = true});
}

TEST(Cors, AnswersPreflights) {
  const auto allowed = Pages({.origins = {"*"}}).asked(kPage, "POST", "authorization, content-type");
  ASSERT_TRUE(allowed && allowed->refusal.empty());
  using Header = std::pair<std::string, std::string>;
  EXPECT_EQ(allowed->headers[0], Header("Access-Control-Allow-Methods", "GET, HEAD, POST"));
  EXPECT_EQ(allowed->headers[2], Header("Access-Control-Allow-Headers", "authorization, content-type"));

  const Pages some({.origins = {std::string(kPage)}, .methods = {"GET", "post"}, .headers = {"Content-Type"}});
  EXPECT_EQ(some.refusal(kPage, "POST", "content-type"), "");
  EXPECT_EQ(some.refusal(kPage, "GET"), "");
  EXPECT_NE(some.refusal(kOther, "POST").find("--allowed-origins"), std::string::npos);
  EXPECT_NE(some.refusal(kPage, "DELETE").find("--allowed-methods"), std::string::npos);
  EXPECT_NE(some.refusal(kPage, "POST", "content-type,authorization").find("\"authorization\""), std::string::npos);
}

// As browsers do it: a preflight, then the request, whose answer the page must be allowed to read.
TEST(Cors, APreflightIsAnsweredAsItsRequestIs) {
  const auto status_and_origin = [](HttpClient& client, std::string_view method, const std::string& headers) {
    const bool asks = method == "OPTIONS";
    const HttpAnswer answer = client.call(method, kChatPath, asks ? "" : chat_body(),
                                          headers + (asks ? "Access-Control-Request-Method: POST\r\n"
                                                            "Access-Control-Request-Headers: content-type\r\n"
                                                          : ""));
    const auto origin = answer.headers.find("access-control-allow-origin");
    return std::pair(answer.status, origin == answer.headers.end() ? "" : origin->second);
  };
  RunningServer running;
  HttpClient client(running.port());
  for (const char* page : {"http://localhost:3000", "http://127.0.0.1:5173", "http://[::1]"}) {
    const std::string origin = "Origin: " + std::string(page) + "\r\n";
    EXPECT_EQ(status_and_origin(client, "OPTIONS", origin), std::pair(200, std::string(page)));
    EXPECT_EQ(status_and_origin(client, "POST", origin), std::pair(200, std::string(page)));
  }
  for (const char* page : {"https://evil.example", "null"}) {
    const HttpAnswer answer = client.call(
        "OPTIONS", kChatPath, {}, "Origin: " + std::string(page) + "\r\nAccess-Control-Request-Method: POST\r\n");
    EXPECT_EQ(answer.status, 403);
    EXPECT_NE(answer.body.find("--allowed-origins"), std::string::npos) << answer.body;
    EXPECT_FALSE(answer.headers.contains("access-control-allow-origin"));
  }
}

}  // namespace
}  // namespace quire
