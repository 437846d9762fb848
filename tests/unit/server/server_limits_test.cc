// The server over loopback: clients that leave, stall or flood it, and stopping without losing an answer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

const std::string kEndless = R"("max_tokens": 1000000)", kEndlessStream = R"("stream": true, "max_tokens": 1000000)";

int inside(RunningServer& running) { return running.server->models().admission()->inside(); }

TEST(ServerLimits, AClientThatLeavesCancelsItsRequest) {
  for (const std::string& fields : {kEndless, kEndlessStream}) {
    RunningServer running;
    running.model.endless = true;
    running.model.token_time = 1ms;
    HttpClient client(running.port());
    client.send(HttpClient::request("POST", kChatPath, chat_body(fields)));
    ASSERT_TRUE(eventually([&] { return running.model.generated() > 5; }));
    client.close();
    EXPECT_TRUE(eventually([&] { return running.model.cancels() > 0 && running.model.running() == 0; }));
    EXPECT_EQ(inside(running), 0);
    EXPECT_NE(
        HttpClient(running.port()).get("/metrics").body.find("finished_reason=\"abort\",model_name=\"scripted\"} 1\n"),
        std::string::npos);
  }
}

TEST(ServerLimits, AClientThatLeavesIsNoticedAfterAPipelinedRequest) {
  RunningServer running;
  running.model.endless = true;
  running.model.token_time = 1ms;
  HttpClient client(running.port());
  client.send(HttpClient::request("POST", kChatPath, chat_body(kEndless)) + HttpClient::request("GET", "/health"));
  ASSERT_TRUE(eventually([&] { return running.model.generated() > 5; }));
  client.close();
  EXPECT_TRUE(eventually([&] { return running.model.running() == 0; }));
}

// Half-closing tells the server that nothing more comes, not that nobody reads.
TEST(ServerLimits, AClientThatClosesItsSendingSideStillGetsItsAnswer) {
  RunningServer running;
  running.model.token_time = 5ms;
  for (const std::string& fields : {std::string(), std::string(R"("stream": true)")}) {
    HttpClient client(running.port());
    client.send(HttpClient::request("POST", kChatPath, chat_body(fields)) + HttpClient::request("GET", "/health"));
    client.end_writing();
    HttpAnswer answer = client.read_answer();
    if (answer.status == 100) answer = client.read_answer();  // the server finds out whether anybody is there
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.whole);
    EXPECT_EQ(client.read_answer().body, R"({"status":"ok"})");
    EXPECT_EQ(client.read_to_end(5s), "");
  }
  EXPECT_EQ(running.model.cancels(), 0);
}

TEST(ServerLimits, AClientThatLeavesAfterClosingItsSendingSideCancelsItsStream) {
  RunningServer running;
  running.model.endless = true;
  running.model.token_time = 1ms;
  HttpClient client(running.port());
  client.send(HttpClient::request("POST", kChatPath, chat_body(kEndlessStream)));
  client.end_writing();
  ASSERT_TRUE(client.wait_for_bytes(5000));
  EXPECT_EQ(running.model.cancels(), 0);
  client.close();
  EXPECT_TRUE(eventually([&] { return running.model.running() == 0; }));
}

TEST(ServerLimits, ASlowReaderIsCancelledAtTheBufferLimit) {
  ServerOptions options;
  options.max_stream_bytes = 64 << 10;
  RunningServer running(options);
  running.model.endless = true;
  running.model.token_time = 10us;  // so that the stream begins
  // Not smaller: emptying megabytes through a window of 2 KiB can take minutes, and the server's write times out.
  HttpClient client(running.port(), 64 << 10);
  client.send(HttpClient::request("POST", kChatPath, chat_body(R"("stream": true, "max_tokens": 100000000)")));
  EXPECT_TRUE(eventually(
      [&] { return running.model.submitted() == 1 && running.model.cancels() > 0 && running.model.running() == 0; }));
  HttpClient other(running.port());
  EXPECT_EQ(other.get("/health").status, 200);  // nobody else waits for it
  // The end of what it reads says that the answer is incomplete.
  const HttpAnswer answer = client.read_answer();
  EXPECT_EQ(Json::parse(events(answer.body).back())["error"]["code"], "slow_reader");
}

TEST(ServerLimits, TheWriteTimeoutEndsAStalledReader) {
  ServerOptions options;
  options.write_timeout = 300ms;
  options.max_stream_bytes = 1 << 30;
  RunningServer running(options);
  running.model.endless = true;
  running.model.token_time = 10us;
  HttpClient client(running.port(), 4096);
  client.send(HttpClient::request("POST", kChatPath, chat_body(kEndlessStream)));
  EXPECT_TRUE(eventually(
      [&] { return running.model.submitted() == 1 && running.model.running() == 0 && inside(running) == 0; }));
}

TEST(ServerLimits, RefusesLargeHeadersAndBodies) {
  ServerOptions options;
  options.max_body_bytes = 1000;
  options.max_header_bytes = 1000;
  options.cors.origins = {"*"};
  RunningServer running(options);
  {
    HttpClient client(running.port());
    const HttpAnswer answer = client.post(kChatPath, std::string(1001, ' '));
    EXPECT_EQ(answer.status, 413);
    EXPECT_EQ(answer.headers.at("connection"), "close");
    EXPECT_EQ(answer.json()["error"]["type"], "invalid_request_error");
  }
  {  // the header has been read, so the answer has its request ID, CORS lines and error shape
    HttpClient client(running.port());
    const HttpAnswer answer =
        client.call("POST", "/v1/messages", std::string(1001, ' '), "X-Request-Id: abc\r\nOrigin: https://a\r\n");
    EXPECT_EQ(answer.status, 413);
    EXPECT_EQ(answer.headers.at("x-request-id"), "abc");
    EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "*");
    EXPECT_EQ(answer.json()["error"]["type"], "request_too_large");
  }
  {
    HttpClient client(running.port());
    EXPECT_EQ(client.post(kChatPath, std::string(3'000'000, ' ')).status,
              413);  // the answer arrives although the client still sends
  }
  {
    HttpClient client(running.port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n" +
                std::string(4096, ' ') + "\r\n0\r\n\r\n");
    EXPECT_EQ(client.read_answer().status, 413);
  }
  {
    HttpClient client(running.port());
    EXPECT_EQ(client.call("GET", "/health", {}, "X: " + std::string(2000, 'x') + "\r\n").status, 431);
  }
  HttpClient client(running.port());
  EXPECT_EQ(client.post(kChatPath, chat_body()).status, 200);
}

TEST(ServerLimits, RefusesEverythingButHttp) {
  RunningServer running;
  for (const char* nonsense :
       {"nonsense\r\n\r\n", "GET /\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1x\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n"}) {
    HttpClient client(running.port());
    client.send(nonsense);
    EXPECT_EQ(client.read_answer().status, 400) << nonsense;
    EXPECT_NE(client.read_to_end(), std::nullopt);
  }
}

// The bytes of such a body must not be taken for another request.
TEST(ServerLimits, RefusesUnknownTransferCodings) {
  RunningServer running;
  for (const std::string coding : {"gzip", "identity", "gzip, chunked", "chunked, gzip", "xchunked", ""}) {
    HttpClient client(running.port());
    client.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " + coding + "\r\n\r\n" +
                HttpClient::request("GET", "/v1/models"));
    EXPECT_EQ(client.read_answer().status, 501) << coding;
    EXPECT_EQ(client.read_to_end(), "") << coding;
  }
}

TEST(ServerLimits, TricklingClientsGetATimeoutError) {
  ServerOptions options;
  options.header_timeout = 300ms;
  options.body_timeout = 300ms;
  RunningServer running(options);
  for (const char* beginning :
       {"GET /health HTTP/1.1\r\n", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    HttpClient client(running.port());
    client.send(beginning);
    std::atomic<bool> closed{false};
    std::thread trickle([&] {
      while (!closed && client.send("1")) std::this_thread::sleep_for(20ms);
    });
    const HttpAnswer answer = client.read_answer();
    EXPECT_EQ(answer.status, 408) << beginning;
    EXPECT_EQ(answer.headers.at("connection"), "close");
    EXPECT_NE(client.read_to_end(5s), std::nullopt) << beginning;
    closed = true;
    trickle.join();
  }
}

TEST(ServerLimits, IdleConnectionsAreClosedWithoutAnAnswer) {
  ServerOptions options;
  options.idle_timeout = 200ms;
  RunningServer running(options);
  HttpClient silent(running.port()), kept(running.port());
  EXPECT_EQ(kept.get("/health").status, 200);
  EXPECT_EQ(silent.read_to_end(5s), "");
  EXPECT_EQ(kept.read_to_end(5s), "");
}

TEST(ServerLimits, BoundsTheBytesOfAllBodies) {
  ServerOptions options;
  options.max_bodies_bytes = 2 << 20;
  RunningServer running(options);
  HttpClient holder(running.port());
  holder.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n" +
              std::string(1'500'000, ' '));
  EXPECT_TRUE(eventually([&] {
    HttpClient other(running.port());
    const HttpAnswer answer = other.post(kCompletionPath, std::string(1'000'000, ' '));
    return answer.status == 503 && answer.json()["error"]["code"] == "overloaded";
  }));
  // Even when large bodies use up their share, small ones are accepted.
  HttpClient second(running.port());
  second.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n" +
              std::string(300'000, ' '));
  EXPECT_EQ(HttpClient(running.port()).post(kChatPath, chat_body()).status, 200);
  EXPECT_EQ(HttpClient(running.port()).post(kCompletionPath, std::string(60'000, ' ')).status, 400);
  second.close();
  holder.close();
  EXPECT_TRUE(eventually(
      [&] { return HttpClient(running.port()).post(kCompletionPath, std::string(1'000'000, ' ')).status == 400; }));
}

TEST(ServerLimits, BoundsTheBytesOfAllAnswers) {
  ServerOptions options;
  options.max_replies_bytes = 15 << 20;
  RunningServer running(options);
  running.model.answer = std::string(1000, 'x');
  // Two answers of 10 MB that nobody reads do not fit together.
  const std::string body =
      R"({"echo": true, "max_tokens": 1, "n": 100, "prompt": ")" + std::string(99'000, 'x') + "\"}";
  HttpClient holder(running.port(), 4096);
  holder.send(HttpClient::request("POST", kCompletionPath, body));
  ASSERT_TRUE(eventually([&] { return running.model.submitted() == 1 && inside(running) == 0; }));
  EXPECT_TRUE(eventually([&] {
    const HttpAnswer answer = HttpClient(running.port()).post(kCompletionPath, body);
    return answer.status == 503 && answer.json()["error"]["code"] == "overloaded";
  }));
  EXPECT_EQ(HttpClient(running.port()).post(kChatPath, chat_body()).status, 200);
  holder.close();
  EXPECT_TRUE(eventually([&] { return HttpClient(running.port()).post(kCompletionPath, body).status == 200; }));
}

// Each of these takes more memory than the limit, and each says where.
TEST(ServerLimits, BoundsTheMemoryOfReadingARequest) {
  ServerOptions options;
  options.large_work_bytes = 2 << 20;
  options.small_work_bytes = 1 << 20;
  RunningServer running(options);
  const auto many = [](std::string_view part, size_t times) {
    std::string text;
    for (size_t i = 0; i < times; ++i) fmt::format_to(std::back_inserter(text), fmt::runtime(part), i);
    text.pop_back();
    return text;
  };
  const std::string schema =
      R"({{"messages": [], "response_format": {{"type": "json_schema", "json_schema": {{"schema": {}}}}}}})";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"prompt": [)" + many("5,", 200'000) + "]}", "reading JSON, at prompt["},
      {R"({"prompt": "x", "y": {"z": [{"a": [0]}, {)" + many("\"{}\":[[]],", 30'000) + "}]}}",
       "reading JSON, at y.z[1]."},
      {R"({"messages": [)" + many(R"({{"role":"user","content":"{}"}},)", 30'000) + "]}", "reading JSON, at messages["},
      {fmt::format(fmt::runtime(schema), R"({"properties": {)" + many("\"p{}\":{{}},", 60'000) + "}}"),
       "reading JSON, at response_format.json_schema.schema.properties.p"},
      {fmt::format(fmt::runtime(schema), R"({"anyOf": [)" + many(R"({{"const":{}}},)", 60'000) + "]}"),
       "reading JSON, at response_format.json_schema.schema.anyOf["},
      {R"({"prompt": ")" + std::string(900'000, 'x') + "\"}", "reading JSON, at prompt"},
      {R"({"prompt": "x", "guided_regex": ")" + std::string(50'000, '.') + "\"}",
       "compiling the grammar of the answer"},
  };
  for (const auto& [body, place] : cases) {
    HttpClient client(running.port());
    const HttpAnswer answer = client.post(body.find("messages") < 4 ? kChatPath : kCompletionPath, body);
    EXPECT_EQ(answer.status, 413) << place;
    EXPECT_EQ(answer.json()["error"]["code"], "request_too_large") << answer.body;
    const auto message = answer.json()["error"]["message"].get<std::string>();
    EXPECT_TRUE(message.starts_with(place)) << message << " for " << place;
    EXPECT_NE(message.find("takes more than 2048 KiB of memory"), message.npos) << message;
    EXPECT_EQ(client.post(kChatPath, chat_body()).status, 200);  // on the same connection
  }
  EXPECT_EQ(inside(running), 0);
}

// A small body that needs more memory than its worker has is read by the other.
TEST(ServerLimits, ASmallBodyThatTakesMuchMemoryIsReadWithTheLargeOnes) {
  ServerOptions options;
  options.small_work_bytes = 64 << 10;
  RunningServer running(options);
  std::string prompt = "5";
  for (int i = 0; i < 9'000; ++i) prompt += ",5";
  EXPECT_EQ(HttpClient(running.port()).post(kCompletionPath, R"({"max_tokens": 1, "prompt": [)" + prompt + "]}").status,
            200);
}

// What a request keeps until it is answered counts like the bodies that are being received.
TEST(ServerLimits, BoundsTheBytesOfRequestsThatWait) {
  ServerOptions options;
  options.max_bodies_bytes = 2 << 20;
  RunningServer running(options);
  running.model.endless = true;
  running.model.token_time = 1ms;
  // Three prompts of 65,000 tokens.
  const std::string text = '"' + std::string(65'000, 'x') + '"';
  const std::string prompts = R"({"prompt": [)" + text + ", " + text + ", " + text + "], ";
  std::vector<std::unique_ptr<HttpClient>> holders;
  for (int i = 0; i < 2; ++i) {
    holders.push_back(std::make_unique<HttpClient>(running.port()));
    holders.back()->send(HttpClient::request("POST", kCompletionPath, prompts + kEndless + "}"));
    ASSERT_TRUE(eventually([&] { return inside(running) == 3 * (i + 1); }));
  }
  const std::string more = prompts + R"("max_tokens": 1})";
  EXPECT_TRUE(eventually([&] {
    const HttpAnswer answer = HttpClient(running.port()).post(kCompletionPath, more);
    return answer.status == 503 && answer.json()["error"]["code"] == "overloaded";
  }));
  EXPECT_EQ(HttpClient(running.port()).post(kChatPath, chat_body(R"("max_tokens": 1)")).status, 200);
  holders.clear();
  EXPECT_TRUE(eventually([&] { return HttpClient(running.port()).post(kCompletionPath, more).status == 200; }));
}

TEST(ServerLimits, SendsContinueToClientsThatExpectIt) {
  RunningServer running;
  HttpClient client(running.port());
  const std::string body = chat_body();
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 100);
  client.send(body);
  EXPECT_EQ(client.read_answer().status, 200);
  HttpClient old(running.port());  // HTTP/1.0 has no interim answers
  old.send("POST /v1/chat/completions HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n");
  std::this_thread::sleep_for(50ms);
  old.send(body);
  EXPECT_EQ(old.read_answer().status, 200);
}

TEST(ServerLimits, AFullQueueIsA429WithRetryAfter) {
  ServerOptions options;
  options.max_running = 2;
  options.max_queue = 1;
  RunningServer running(options);
  running.model.endless = true;
  running.model.token_time = 1ms;
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<HttpClient>(running.port()));
    clients.back()->send(HttpClient::request("POST", kChatPath, chat_body(kEndlessStream)));
    ASSERT_TRUE(eventually([&] { return inside(running) == i + 1; }));
  }
  HttpClient late(running.port());
  const HttpAnswer answer = late.post(kChatPath, chat_body());
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.headers.at("retry-after"), "1");
  EXPECT_EQ(answer.json()["error"]["code"], "queue_full");
  EXPECT_EQ(late.get("/health").status, 200);
  clients.clear();
  ASSERT_TRUE(eventually([&] { return inside(running) == 0; }));
  // A request larger than the queue runs while nothing else does.
  EXPECT_EQ(late.post(kChatPath, chat_body(R"("n": 8, "max_tokens": 1)")).status, 200);
}

// A tenant leaves as many places free as it holds, but only if there are others.
TEST(ServerLimits, WithOneKeyEveryPlaceCanBeUsedAndWithSeveralTheRefusalSaysWhy) {
  for (const bool several : {false, true}) {
    ServerOptions options;
    options.api_keys = {"sk-a"};
    if (several) options.api_keys.push_back("sk-b");
    options.max_running = 1;
    options.max_queue = 1;
    RunningServer running(options);
    running.model.endless = true;
    running.model.token_time = 1ms;
    const std::string key = "Authorization: Bearer sk-a\r\n";
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < (several ? 1 : 2); ++i) {
      clients.push_back(std::make_unique<HttpClient>(running.port()));
      clients.back()->send(HttpClient::request("POST", kChatPath, chat_body(kEndlessStream), key));
      ASSERT_TRUE(eventually([&] { return inside(running) == i + 1; }));
    }
    const HttpAnswer answer = HttpClient(running.port()).call("POST", kChatPath, chat_body(), key);
    EXPECT_EQ(answer.status, 429);
    const std::string message = answer.json()["error"]["message"];
    EXPECT_NE(message.find("at most 1 answers may run and 1 wait"), std::string::npos) << message;
    EXPECT_EQ(message.find("for this API key: it holds 1 of the 2 places") != std::string::npos, several) << message;
    clients.clear();
    EXPECT_TRUE(eventually([&] { return inside(running) == 0; }));
  }
}

// The engine may be in the middle of a long step, and another request must not wait for that.
TEST(ServerLimits, ATimeoutGivesBackItsPlacesWithItsAnswer) {
  ServerOptions options;
  options.max_running = options.max_queue = 4;
  RunningServer running(options);
  running.model.endless = true;
  running.model.token_time = 500ms;
  HttpClient client(running.port());
  EXPECT_EQ(client.post(kChatPath, chat_body(R"("n": 8, "timeout": 0.05)")).status, 504);
  EXPECT_EQ(inside(running), 0);
}

TEST(ServerLimits, ARequestThatTakesTooLongIsCancelled) {
  ServerOptions options;
  options.request_timeout = 200ms;
  RunningServer running(options);
  running.model.endless = true;
  running.model.token_time = 1ms;
  HttpClient client(running.port());
  EXPECT_EQ(client.post(kChatPath, chat_body(kEndless)).status, 504);
  const HttpAnswer stream = client.post(kChatPath, chat_body(kEndlessStream));
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(Json::parse(events(stream.body).back())["error"]["code"], "timeout");
  EXPECT_TRUE(eventually([&] { return running.model.running() == 0; }));
}

TEST(ServerLimits, TheEngineGetsTheTimeoutAndMayEndTheAnswerItself) {
  ServerOptions options;
  options.request_timeout = 90s;
  RunningServer running(options);
  std::atomic<double> timeout{0};
  running.model.on_submit = [&](const Request& request) { timeout = request.timeout; };
  running.model.fail_at_token = 2;
  running.model.failure = FinishReason::kTimeout;
  running.model.token_time = 20ms;  // so that the stream has begun
  HttpClient client(running.port());
  const HttpAnswer answer = client.post(kChatPath, chat_body());
  EXPECT_EQ(answer.status, 504);
  EXPECT_EQ(answer.json()["error"]["code"], "timeout");
  EXPECT_EQ(timeout, 90);
  const HttpAnswer stream = client.post(kChatPath, chat_body(R"("stream": true)"));
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(Json::parse(events(stream.body).back())["error"]["code"], "timeout");
}

TEST(ServerLimits, AGracefulStopFinishesAnswersAndRefusesNewConnections) {
  RunningServer running;
  running.model.answer = std::string(300, 'x');
  running.model.token_time = 1ms;
  HttpClient idle(running.port()), busy(running.port());
  EXPECT_EQ(idle.get("/health").status, 200);
  busy.send(HttpClient::request("POST", kChatPath, chat_body(R"("stream": true)")));
  ASSERT_TRUE(eventually([&] { return running.model.generated() > 5; }));
  running.server->stop();
  EXPECT_EQ(idle.read_to_end(5s), "");
  EXPECT_TRUE(eventually([&] { return !HttpClient(running.port()).connected; }));
  const HttpAnswer answer = busy.read_answer();
  EXPECT_TRUE(answer.whole);
  EXPECT_EQ(events(answer.body).back(), "[DONE]");
  running.join();
}

// So a router sees the server leave before a request fails.
TEST(ServerLimits, ADrainingServerSaysSoAndStillAnswers) {
  ServerOptions options;
  options.drain = 60s;
  RunningServer running(options);
  HttpClient idle(running.port()), early(running.port());
  EXPECT_EQ(idle.get("/ready").status, 200);
  EXPECT_EQ(early.get("/health").status, 200);
  running.server->stop();
  ASSERT_TRUE(eventually([&] { return HttpClient(running.port()).get("/ready").status == 503; }));
  EXPECT_EQ(HttpClient(running.port()).get("/health").json()["status"], "stopping");
  HttpClient late(running.port());
  const HttpAnswer answer = late.post(kChatPath, chat_body());
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_EQ(late.read_to_end(5s), "");
  early.send(HttpClient::request("POST", kChatPath, chat_body(R"("stream": true)")));
  const HttpAnswer stream = early.read_answer();
  EXPECT_EQ(events(stream.body).back(), "[DONE]");
  EXPECT_EQ(stream.headers.at("connection"), "close");
  running.server->stop();  // ends the drain
  EXPECT_EQ(idle.read_to_end(5s), "");
  running.join();
}

TEST(ServerLimits, ADrainEndsByItself) {
  ServerOptions options;
  options.drain = 50ms;
  RunningServer running(options);
  HttpClient idle(running.port());
  EXPECT_EQ(idle.get("/ready").status, 200);
  running.server->stop();
  EXPECT_EQ(idle.read_to_end(5s), "");
  running.join();
}

TEST(ServerLimits, AfterTheGraceAnswersEndWithAnError) {
  ServerOptions options;
  options.grace = 100ms;
  RunningServer running(options);
  running.model.endless = true;
  running.model.token_time = 1ms;
  HttpClient stream(running.port()), whole(running.port());
  stream.send(HttpClient::request("POST", kChatPath, chat_body(kEndlessStream)));
  whole.send(HttpClient::request("POST", kChatPath, chat_body(kEndless)));
  ASSERT_TRUE(eventually([&] { return running.model.submitted() == 2 && running.model.generated() > 20; }));
  running.server->stop();
  EXPECT_EQ(Json::parse(events(stream.read_answer().body).back())["error"]["code"], "stopping");
  EXPECT_EQ(whole.read_answer().status, 503);
  running.join();
}

TEST(ServerLimits, APortInUseIsAClearError) {
  RunningServer running;
  ScriptedCompleter model;
  ServerOptions options;
  options.port = running.port();
  try {
    Server second(model, options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("in use"), std::string::npos) << e.what();
  }
  options.hosts = {"no.such.host.invalid"};
  EXPECT_THROW(Server(model, options), Error);
}

// A client can vanish in every phase of its request.
TEST(ServerLimits, VanishedClientsLeaveNothingBehind) {
  RunningServer running;
  running.model.answer = std::string(40, 'x');
  running.model.token_time = 100us;
  const std::string request = HttpClient::request("POST", kChatPath, chat_body(R"("stream": true, "n": 2)"));
  for (size_t sent = 0; sent <= request.size(); sent += 3) {
    HttpClient client(running.port());
    client.send(std::string_view(request).substr(0, sent));
  }
  for (int i = 0; i < 60; ++i) {
    HttpClient client(running.port());
    client.send(request);
    client.wait_for_bytes(static_cast<size_t>(i) * 100);
  }
  EXPECT_TRUE(eventually([&] { return inside(running) == 0 && running.model.running() == 0; }));
  EXPECT_EQ(HttpClient(running.port()).post(kChatPath, chat_body()).status, 200);
}

}  // namespace
}  // namespace quire
