// HTTPS over loopback: everything that HTTP does, and failures before a session begins.
#include "server/http/tls.h"

#include <gtest/gtest.h>

#include <csignal>

#include "base/error.h"
#include "unit/server/running_server.h"
#include "unit/server/temporary_files.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() { write_certificate(folder, "first"); }
  ServerOptions options() const {
    ServerOptions options;
    options.ssl_certfile = folder.path("cert.pem");
    options.ssl_keyfile = folder.path("key.pem");
    return options;
  }
  // The name in the server's certificate.
  static std::string common_name(uint16_t port) {
    HttpClient client(port);
    if (!client.start_tls()) return "no session";
    X509* certificate = SSL_get1_peer_certificate(client.tls());
    char name[64] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof name);
    X509_free(certificate);
    return name;
  }

  TemporaryFolder folder;
};

TEST_F(TlsTest, AnswersThroughTls) {
  RunningServer running(options());
  EXPECT_TRUE(running.server->url().starts_with("https://"));
  HttpClient client(running.port());
  ASSERT_TRUE(client.start_tls());
  EXPECT_EQ(client.post(kChatPath, chat_body()).json()["choices"][0]["message"]["content"], "Hello");
  const HttpAnswer stream = client.post(kChatPath, chat_body(R"("stream": true)"));
  EXPECT_EQ(events(stream.body).back(), "[DONE]");
  // Larger than a TLS record and the socket's buffers, followed by a pipelined request.
  const std::string large = "{\"prompt\": \"" + std::string(90'000, 'x') + R"(", "echo": true})";
  client.send(HttpClient::request("POST", kCompletionPath, large) + HttpClient::request("GET", "/health"));
  EXPECT_EQ(client.read_answer().json()["choices"][0]["text"].get<std::string>().size(), 90'005u);
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST_F(TlsTest, AClientThatLeavesCancelsItsRequest) {
  RunningServer running(options());
  running.model.endless = true;
  running.model.token_time = 1ms;
  for (const char* fields : {R"("max_tokens": 1000000)", R"("stream": true, "max_tokens": 1000000)"}) {
    HttpClient client(running.port());
    ASSERT_TRUE(client.start_tls());
    const uint64_t before = running.model.generated();
    client.send(HttpClient::request("POST", kChatPath, chat_body(fields)));
    ASSERT_TRUE(eventually([&] { return running.model.generated() > before + 5; }));
    client.close();
    EXPECT_TRUE(eventually([&] { return running.model.running() == 0; }));
  }
}

TEST_F(TlsTest, AClientThatSendsCloseNotifyStillGetsItsAnswer) {
  RunningServer running(options());
  running.model.token_time = 20ms;
  HttpClient client(running.port());
  ASSERT_TRUE(client.start_tls());
  client.send(HttpClient::request("POST", kChatPath, chat_body()));
  SSL_shutdown(client.tls());
  HttpAnswer answer = client.read_answer();
  if (answer.status == 100) answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.whole);
}

TEST_F(TlsTest, ASlowReaderIsCancelledAtTheBufferLimit) {
  ServerOptions limited = options();
  limited.max_stream_bytes = 64 << 10;
  RunningServer running(limited);
  running.model.endless = true;
  running.model.token_time = 10us;
  HttpClient client(running.port(), 64 << 10);
  ASSERT_TRUE(client.start_tls());
  client.send(HttpClient::request("POST", kChatPath, chat_body(R"("stream": true, "max_tokens": 100000000)")));
  EXPECT_TRUE(eventually([&] { return running.model.cancels() > 0 && running.model.running() == 0; }));
  // Writes that had to be retried are complete.
  EXPECT_EQ(Json::parse(events(client.read_answer().body).back())["error"]["code"], "slow_reader");
}

TEST_F(TlsTest, ExplainsItselfToHttpClients) {
  RunningServer running(options());
  HttpClient client(running.port());
  const HttpAnswer answer = client.get("/health");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["message"], "this port takes HTTPS only");
  EXPECT_NE(client.read_to_end(), std::nullopt);
}

TEST_F(TlsTest, ClosesConnectionsWithoutAHandshake) {
  RunningServer running(options());
  for (const std::string& nonsense : {std::string("nonsense\r\n\r\n"), std::string(300, '\0'), std::string(300, '\x16'),
                                      std::string("\x16\x03\x01\x00\x05\x01\x00\x00\x01\xff", 10)}) {
    HttpClient client(running.port());
    client.send(nonsense);
    client.end_writing();
    EXPECT_NE(client.read_to_end(5s), std::nullopt);
  }
  HttpClient client(running.port());
  ASSERT_TRUE(client.start_tls());
  EXPECT_EQ(client.get("/health").status, 200);
}

TEST_F(TlsTest, ASlowHandshakeTimesOut) {
  ServerOptions hasty = options();
  hasty.header_timeout = 300ms;
  RunningServer running(hasty);
  HttpClient silent(running.port()), slow(running.port());
  slow.send("\x16\x03\x01");
  EXPECT_NE(silent.read_to_end(5s), std::nullopt);
  EXPECT_NE(slow.read_to_end(5s), std::nullopt);
}

TEST_F(TlsTest, AStopEndsHandshakesAndIdleSessions) {
  RunningServer running(options());
  HttpClient silent(running.port()), idle(running.port());
  ASSERT_TRUE(idle.start_tls());
  EXPECT_EQ(idle.get("/health").status, 200);
  running.server->stop();
  EXPECT_NE(silent.read_to_end(5s), std::nullopt);
  EXPECT_NE(idle.read_to_end(5s), std::nullopt);
  running.join();
}

TEST_F(TlsTest, ReloadsTheCertificateOnSighup) {
  RunningServer running(options(), [](Server& server) { server.obey_signals(); });
  EXPECT_EQ(common_name(running.port()), "first");
  HttpClient before(running.port());
  ASSERT_TRUE(before.start_tls());
  write_certificate(folder, "second");
  std::raise(SIGHUP);
  EXPECT_TRUE(eventually([&] { return common_name(running.port()) == "second"; }));
  EXPECT_EQ(before.get("/health").status, 200);
  folder.write("cert.pem", "broken");
  std::raise(SIGHUP);
  folder.write("key.pem", "broken");
  std::raise(SIGHUP);
  EXPECT_EQ(common_name(running.port()), "second");
}

TEST_F(TlsTest, NamesTheWrongFile) {
  const auto error_of = [&](const std::string& certificate, const std::string& key) -> std::string {
    try {
      Tls(certificate, key);
      return "none";
    } catch (const Error& error) {
      return error.what();
    }
  };
  const std::string cert = folder.path("cert.pem"), key = folder.path("key.pem");
  const std::string text = folder.write("text", "hello");
  EXPECT_EQ(error_of(cert, key), "none");
  EXPECT_NE(error_of(folder.path("missing"), key).find("--ssl-certfile " + folder.path("missing")), std::string::npos);
  EXPECT_NE(error_of(text, key).find("--ssl-certfile " + text), std::string::npos);
  EXPECT_NE(error_of(cert, text).find("--ssl-keyfile " + text), std::string::npos);
  TemporaryFolder other;
  write_certificate(other, "other");
  EXPECT_NE(error_of(cert, other.path("key.pem")).find("mismatch"), std::string::npos);
  write_certificate(other, "other", "secret");
  EXPECT_NE(error_of(other.path("cert.pem"), other.path("key.pem")).find("passphrase"), std::string::npos);

  ServerOptions half;
  half.ssl_certfile = cert;
  EXPECT_THROW(Server{half}, Error);
}

}  // namespace
}  // namespace quire
