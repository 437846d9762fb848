#include "server/http/local_hosts.h"

#include <gtest/gtest.h>

#include "unit/server/running_server.h"

namespace quire {
namespace {

TEST(LocalHosts, AllowsLoopbackHostsOfAnyPort) {
  const LocalHosts local({"127.0.0.1", "Workstation"}, {});
  for (const char* host : {"localhost", "LocalHost:8080", "localhost.:1", "a.localhost", "127.0.0.1:8080", "127.1.2.3",
                           "[::1]", "[::1]:8080", "workstation:8080", ""}) {
    EXPECT_TRUE(local.allows_host(host)) << host;
  }
  for (const char* host : {"evil.example", "localhost.evil.example", "evillocalhost", "127.0.0.1.evil.example", "127.1",
                           "0.0.0.0:8080", "192.168.0.1", "[::2]", "2130706433", ":8080", "@localhost"}) {
    EXPECT_FALSE(local.allows_host(host)) << host;
  }
}

TEST(LocalHosts, AllowsPagesOfLoopbackAndOfAllowedOrigins) {
  const LocalHosts local({"127.0.0.1"}, {"https://chat.example.org"});
  for (const char* origin :
       {"", "http://localhost:3000", "https://127.0.0.1", "http://[::1]:8080", "https://chat.example.org"}) {
    EXPECT_TRUE(local.allows_origin(origin)) << origin;
  }
  for (const char* origin : {"null", "http://evil.example", "http://chat.example.org", "https://chat.example.org:444",
                             "localhost", "http://", "file://"}) {
    EXPECT_FALSE(local.allows_origin(origin)) << origin;
  }
  EXPECT_TRUE(local.allows_host("chat.example.org:8080"));  // behind a proxy
  const LocalHosts any({}, {"*"});
  EXPECT_TRUE(any.allows_host("a.example") && any.allows_origin("https://b.example"));
}

TEST(LocalHosts, AServerWithoutKeysRefusesForeignPagesBeforeTheirBodyArrives) {
  RunningServer running;
  for (const std::string& headers :
       {std::string("Host: evil.example\r\n"), std::string("Host: 127.0.0.1\r\nOrigin: https://evil.example\r\n"),
        std::string("Host: 127.0.0.1\r\nOrigin: null\r\n")}) {
    HttpClient client(running.port());
    client.send("POST /v1/chat/completions HTTP/1.1\r\n" + headers + "Content-Length: 1000\r\n\r\n");
    const HttpAnswer answer = client.read_answer();
    EXPECT_EQ(answer.status, 403) << headers;
    EXPECT_TRUE(answer.json()["error"]["code"].get<std::string>().starts_with("foreign_")) << headers;
  }
  EXPECT_EQ(running.model.submitted(), 0u);
  HttpClient client(running.port());
  EXPECT_EQ(client.call("POST", kChatPath, chat_body(), "Origin: http://localhost:3000\r\n").status, 200);
  // With keys, a page has nothing to gain.
  ServerOptions options;
  options.api_keys = {"sk-1"};
  RunningServer closed(options);
  EXPECT_EQ(HttpClient(closed.port())
                .call("POST", kChatPath, chat_body(), "Authorization: Bearer sk-1\r\nOrigin: https://a.example\r\n")
                .status,
            200);
}

}  // namespace
}  // namespace quire
