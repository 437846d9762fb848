// Thousands of broken requests over real sockets: each is answered or its connection closed, no body is taken for
// another request, and the server keeps running.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "unit/server/running_server.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

constexpr int kCases = 3000;

const std::string kGood[] = {
    HttpClient::request("GET", "/health"),
    HttpClient::request("GET", "/v1/models"),
    HttpClient::request("POST", kChatPath, chat_body(R"("max_tokens": 3)")),
    HttpClient::request("POST", kCompletionPath, R"({"prompt": "x", "stream": true, "max_tokens": 3})"),
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
    "chunked\r\n\r\n8\r\n{\"prompt\r\n8;a=b\r\n\": "
    "\"xy\"}\r\n0\r\n\r\n",
};
const std::string kOdd[] = {"\r\n",
                            "\n",
                            "\r",
                            std::string(1, '\0'),
                            ":",
                            " ",
                            "\t",
                            "\xff\xfe",
                            "HTTP/1.1",
                            "HTTP/0.9",
                            "Content-Length: 5\r\n",
                            "Content-Length: 0\r\n",
                            "Content-Length: 18446744073709551616\r\n",
                            "Content-Length: -1\r\n",
                            "Content-Length: 5, 5\r\n",
                            "Transfer-Encoding: chunked\r\n",
                            "Transfer-Encoding: gzip, chunked\r\n",
                            "Transfer-Encoding: chunked, chunked\r\n",
                            "Transfer-Encoding: identity\r\n",
                            "Expect: 100-continue\r\n",
                            "Expect: 200-maybe\r\n",
                            "Connection: close\r\n",
                            "Connection: upgrade\r\nUpgrade: h2c\r\n",
                            " folded: line\r\n",
                            "X: " + std::string(300, 'y') + "\r\n",
                            "ffffffffffffffff\r\n",
                            "0\r\n\r\n",
                            "GET / HTTP/1.1\r\n\r\n",
                            "Host: evil.example\r\n",
                            "Content-Encoding: gzip\r\n",
                            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                            "%00%2e%2e/",
                            "\"",
                            "{",
                            std::string(64, '[')};

std::string broken_request(std::mt19937& random) {
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  if (below(20) == 0) {  // nothing like HTTP
    std::string bytes(below(600) + 1, '\0');
    for (char& c : bytes) c = static_cast<char>(below(256));
    return bytes;
  }
  std::string text = kGood[below(std::size(kGood))];
  for (size_t edits = below(4) + 1; edits > 0; --edits) {
    const size_t at = below(text.size());
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.insert(at, kOdd[below(std::size(kOdd))]);
        break;
      case 2:
        text.erase(at, below(20) + 1);
        break;
      case 3: {  // an additional header
        const size_t line = text.find("\r\n");
        text.insert(line == text.npos ? 0 : line + 2, kOdd[below(std::size(kOdd))]);
        break;
      }
      case 4:
        text.resize(at + 1);
        break;
      default:
        text += text.substr(at);
    }
    if (text.empty()) text = " ";
  }
  return text;
}

TEST(MalformedHttp, BrokenRequestsAreAnsweredOrTheirConnectionClosed) {
  ServerOptions options;
  options.max_header_bytes = 1024;
  options.max_body_bytes = 4096;
  RunningServer running(options);
  std::mt19937 random(20260501);
  const std::set<std::string> known = {"100", "200", "400", "403", "404", "405", "408", "413", "415", "431", "501"};
  std::set<std::string> seen;
  for (int i = 0; i < kCases; ++i) {
    const std::string request = broken_request(random);
    HttpClient client(running.port());
    // Every third in two pieces.
    const size_t first = i % 3 == 0 ? request.size() / 2 : request.size();
    client.send(std::string_view(request).substr(0, first));
    if (first < request.size()) client.send(std::string_view(request).substr(first));
    client.end_writing();
    const auto answer = client.read_to_end(10s);
    ASSERT_NE(answer, std::nullopt) << "the connection stayed open after:\n" << request;
    if (answer->empty()) continue;
    ASSERT_TRUE(answer->starts_with("HTTP/1.1 ")) << *answer << "\nafter:\n" << request;
    const std::string status = answer->substr(9, 3);
    ASSERT_TRUE(known.contains(status)) << *answer << "\nafter:\n" << request;
    seen.insert(status);
    if (i % 500 == 0) {
      ASSERT_EQ(HttpClient(running.port()).get("/health").status, 200);
    }
  }
  for (const char* status : {"200", "400", "404", "405"}) EXPECT_TRUE(seen.contains(status)) << status;
  EXPECT_EQ(HttpClient(running.port()).post(kChatPath, chat_body()).json()["choices"][0]["message"]["content"],
            "Hello");
  EXPECT_TRUE(eventually([&] { return running.server->models().admission()->inside() == 0; }));
}

// A proxy and a server could understand these differently: request smuggling.
TEST(MalformedHttp, RefusesAmbiguousLengths) {
  RunningServer running;
  for (const char* header :
       {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: +5\r\n", "Content-Length: 5 5\r\n", "Content-Length: 0x5\r\n", "Content-Length : 5\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"}) {
    HttpClient client(running.port());
    client.send(std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n") + header +
                "\r\n0\r\n\r\nGET /health HTTP/1.1\r\n\r\n");
    EXPECT_EQ(client.read_answer().status, 400) << header;
    EXPECT_EQ(client.read_to_end(5s), "") << header;  // the rest is not a second request
  }
}

TEST(MalformedHttp, RefusesAMissingOrRepeatedHost) {
  RunningServer running;
  const auto status = [&](const std::string& request) {
    HttpClient client(running.port());
    client.send(request + "\r\n\r\n");
    return client.read_answer().status;
  };
  EXPECT_EQ(status("GET /health HTTP/1.1"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.0\r\nHost: localhost\r\nhost: 127.0.0.1"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: localhost"), 200);
  EXPECT_EQ(status("GET /health HTTP/1.0"), 200);
}

TEST(MalformedHttp, RefusesContentEncodingsBeforeTheBodyArrives) {
  RunningServer running;
  HttpClient client(running.port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: t.localhost\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n");
  const HttpAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 415);
  EXPECT_NE(answer.json()["error"]["message"].get<std::string>().find("gzip"), std::string::npos);
  EXPECT_EQ(answer.headers.at("accept-encoding"), "identity");
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_EQ(HttpClient(running.port()).call("POST", kChatPath, chat_body(), "Content-Encoding: identity\r\n").status,
            200);
}

// Both would otherwise let a client send megabytes that no limit counts.
TEST(MalformedHttp, TrailersAndChunkExtensionsCountTowardsTheHeaderLimit) {
  ServerOptions options;
  options.max_header_bytes = 1000;
  RunningServer running(options);
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string prompt = R"({"prompt": "xy"})", x(300, 'x');
  const auto status = [&](const std::string& body) {
    HttpClient client(running.port());
    client.send(head + body);
    return client.read_answer().status;
  };
  std::string bytewise;  // small chunks are no extensions
  for (const char c : prompt + std::string(500, ' ')) bytewise += std::string("1\r\n") + c + "\r\n";
  EXPECT_EQ(status(bytewise + "0\r\n\r\n"), 200);
  EXPECT_EQ(status("10;a=" + x + "\r\n" + prompt + "\r\n0\r\nX: " + x + "\r\n\r\n"), 200);
  EXPECT_EQ(status("10;a=" + x + x + x + x + "\r\n" + prompt + "\r\n0\r\n\r\n"), 431);
  EXPECT_EQ(status("10\r\n" + prompt + "\r\n0\r\nX: " + x + x + x + x + "\r\n\r\n"), 431);
  std::string extended;  // each within the limit, but not all together
  for (int i = 0; i < 5; ++i) extended += "1;a=" + x + "\r\n \r\n";
  EXPECT_EQ(status(extended + "0\r\n\r\n"), 431);
  EXPECT_EQ(status("10;a=" + std::string(2000, 'x')), 431);  // without its end
}

}  // namespace
}  // namespace quire
