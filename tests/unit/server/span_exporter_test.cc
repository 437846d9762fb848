// Spans on their way to a collector that is slow, refuses, closes connections or is not there.
#include "server/otlp/span_exporter.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "error_of.h"
#include "unit/server/running_server.h"
#include "unit/server/scripted_collector.h"
#include "unit/server/temporary_files.h"

namespace quire {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

SpanExporterOptions quick(const std::string& url) {
  SpanExporterOptions options;
  options.url = parse_collector_url(url);
  options.delay = options.first_pause = 1ms;
  return options;
}

RequestSpan span_of(const std::string& id) {
  RequestSpan span;
  span.trace = new_trace_id();
  span.id = new_span_id();
  span.began = 1'700'000'000'123'456'789;
  span.ended = span.began + 250'000'000;
  span.request_id = id;
  span.model = "m";
  span.route = "/v1/chat/completions";
  span.choices = 1;
  span.prompt_tokens = 7;
  span.completion_tokens = 9;
  span.finish_reasons = {"stop"};
  span.queue = 0.5;
  span.status = 200;
  return span;
}

uint64_t all(const SpanCounts& counts) {
  uint64_t sum = 0;
  for (const auto& count : counts.by_fate) sum += count;
  return sum;
}

// Adds spans and waits until something has become of all.
std::shared_ptr<SpanCounts> send(const SpanExporterOptions& options, int spans) {
  auto counts = std::make_shared<SpanCounts>();
  SpanExporter exporter(options, counts);
  for (int i = 0; i < spans; ++i) exporter.add(span_of(std::to_string(i)));
  EXPECT_TRUE(eventually([&] { return all(*counts) == static_cast<uint64_t>(spans); }));
  return counts;
}

TEST(SpanExporter, SendsSpansAsOtlpJson) {
  ScriptedCollector collector;
  SpanExporterOptions options = quick(collector.url());
  options.headers = parse_collector_headers("Authorization=Bearer%20secret, x-tenant=a");
  options.service = "chat \"service\"";
  EXPECT_EQ(send(options, 1)->of(SpanFate::kExported), 1u);
  ASSERT_EQ(collector.texts().size(), 1u);
  const std::string text = collector.texts().front();
  EXPECT_TRUE(text.starts_with("POST /v1/traces HTTP/1.1\r\n")) << text;
  for (const char* line : {"Content-Type: application/json\r\n", "Authorization: Bearer secret\r\n", "x-tenant: a\r\n"})
    EXPECT_NE(text.find(line), text.npos) << line;
  const Json body = Json::parse(text.substr(text.find("\r\n\r\n") + 4));
  EXPECT_EQ(body["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"], options.service);
  const Json span = collector.spans().front();
  EXPECT_EQ(span["name"], "llm_request");
  EXPECT_EQ(span["kind"], 2);
  EXPECT_EQ(span["traceId"].get<std::string>().size(), 32u);
  EXPECT_EQ(span["spanId"].get<std::string>().size(), 16u);
  EXPECT_FALSE(span.contains("parentSpanId"));
  EXPECT_EQ(span["startTimeUnixNano"], "1700000000123456789") << "a string: a double would round it";
  EXPECT_EQ(span["endTimeUnixNano"], "1700000000373456789");
  const auto attribute = [&](const char* key) { return ScriptedCollector::attribute(span, key); };
  EXPECT_EQ(attribute("gen_ai.request.id"), "0");
  EXPECT_EQ(attribute("gen_ai.usage.prompt_tokens"), "7");
  EXPECT_EQ(attribute("gen_ai.usage.completion_tokens"), "9");
  EXPECT_EQ(attribute("gen_ai.latency.time_in_queue"), 0.5);
  EXPECT_EQ(attribute("gen_ai.latency.e2e"), 0.25);
  EXPECT_EQ(attribute("gen_ai.latency.time_to_first_token"), nullptr) << "not known";
  EXPECT_EQ(attribute("gen_ai.response.finish_reasons")["values"][0]["stringValue"], "stop");
  EXPECT_FALSE(span.contains("status")) << "it did not fail";
}

TEST(SpanExporter, SendsManySpansInBatches) {
  ScriptedCollector collector;
  SpanExporterOptions options = quick(collector.url());
  options.batch = 10;
  options.delay = 10s;  // full batches do not wait
  auto counts = std::make_shared<SpanCounts>();
  {
    SpanExporter exporter(options, counts);
    for (int i = 0; i < 25; ++i) exporter.add(span_of(std::to_string(i)));
    EXPECT_TRUE(eventually([&] { return counts->of(SpanFate::kExported) == 20; }));
    EXPECT_EQ(collector.requests(), 2);
  }
  EXPECT_EQ(counts->of(SpanFate::kExported), 25u) << "what waits is sent at the end";
  std::set<std::string> ids;
  for (const Json& span : collector.spans()) ids.insert(ScriptedCollector::attribute(span, "gen_ai.request.id"));
  EXPECT_EQ(ids.size(), 25u);
}

TEST(SpanExporter, TriesAgainWhileTheCollectorIsBusy) {
  for (const int status : {429, 502, 503, 504}) {
    ScriptedCollector collector([&](int request) { return CollectorReply{.status = request < 2 ? status : 200}; });
    EXPECT_EQ(send(quick(collector.url()), 1)->of(SpanFate::kExported), 1u) << status;
    EXPECT_EQ(collector.requests(), 3) << status;
  }
}

TEST(SpanExporter, TriesAgainAfterAClosedConnection) {
  ScriptedCollector collector([](int request) { return CollectorReply{.closes = request < 2}; });
  EXPECT_EQ(send(quick(collector.url()), 3)->of(SpanFate::kExported), 3u);
  EXPECT_EQ(collector.requests(), 3);
}

TEST(SpanExporter, WaitsAsLongAsTheCollectorAsks) {
  ScriptedCollector collector([](int request) {
    return request == 0 ? CollectorReply{.status = 503, .headers = "Retry-After: 1\r\n"} : CollectorReply{};
  });
  const auto began = Clock::now();
  EXPECT_EQ(send(quick(collector.url()), 1)->of(SpanFate::kExported), 1u);
  EXPECT_GE(Clock::now() - began, 1s);
}

TEST(SpanExporter, GivesABatchUpAfterSomeAttempts) {
  ScriptedCollector collector([](int) { return CollectorReply{.status = 503}; });
  SpanExporterOptions options = quick(collector.url());
  options.attempts = 3;
  EXPECT_EQ(send(options, 2)->of(SpanFate::kUnreachable), 2u);
  EXPECT_EQ(collector.requests(), 3);
}

TEST(SpanExporter, DoesNotRepeatWhatTheCollectorRefuses) {
  for (const int status : {301, 400, 401, 404, 413, 500}) {
    ScriptedCollector collector([&](int) { return CollectorReply{.status = status, .body = "no \"thanks\"\n"}; });
    EXPECT_EQ(send(quick(collector.url()), 1)->of(SpanFate::kRefused), 1u) << status;
    EXPECT_EQ(collector.requests(), 1) << status;
  }
}

TEST(SpanExporter, CountsSpansOfWhichTheCollectorTakesAPart) {
  ScriptedCollector collector([](int) {
    return CollectorReply{.body = R"({"partialSuccess": {"rejectedSpans": "2", "errorMessage": "too old"}})"};
  });
  SpanExporterOptions options = quick(collector.url());
  options.delay = 100ms;
  const auto counts = send(options, 5);
  EXPECT_EQ(counts->of(SpanFate::kExported), 3u);
  EXPECT_EQ(counts->of(SpanFate::kRefused), 2u);
}

TEST(SpanExporter, ReadsAnswersThatAreNoneAsAccepted) {
  for (const char* body :
       {"", "{}", "[]", "7", "{\"partialSuccess\": {}}", "{\"partialSuccess\": {\"rejectedSpans\": \"many\"}}",
        "{\"partialSuccess\": {\"rejectedSpans\": -3}}", "not JSON", "\xff"})
    EXPECT_EQ(refused_spans(body), 0) << body;
  EXPECT_EQ(refused_spans(R"({"partialSuccess": {"rejectedSpans": 4}})"), 4);
}

// The engine and the connections must never wait for it.
TEST(SpanExporter, DropsSpansWhileTheCollectorIsSlow) {
  ScriptedCollector collector([](int) { return CollectorReply{.delay = 60s}; });
  SpanExporterOptions options = quick(collector.url());
  options.most_waiting = 8;
  options.batch = 4;
  options.last_time = 50ms;
  auto counts = std::make_shared<SpanCounts>();
  const auto began = Clock::now();
  {
    SpanExporter exporter(options, counts);
    for (int i = 0; i < 100; ++i) exporter.add(span_of("x"));
    EXPECT_GE(counts->of(SpanFate::kQueueFull), 100u - 8 - 4);
  }
  EXPECT_LT(Clock::now() - began, 30s) << "the end does not wait for it either";
  EXPECT_EQ(all(*counts), 100u) << "none is forgotten";
  EXPECT_EQ(counts->of(SpanFate::kExported), 0u);
}

TEST(SpanExporter, EndsWhileItWaitsToTryAgain) {
  ScriptedCollector collector([](int) { return CollectorReply{.status = 503, .headers = "Retry-After: 60\r\n"}; });
  auto counts = std::make_shared<SpanCounts>();
  const auto began = Clock::now();
  {
    SpanExporter exporter(quick(collector.url()), counts);
    exporter.add(span_of("x"));
    EXPECT_TRUE(eventually([&] { return collector.requests() == 1; }));
  }
  EXPECT_LT(Clock::now() - began, 30s);
  EXPECT_EQ(counts->of(SpanFate::kUnreachable), 1u);
}

TEST(SpanExporter, GivesUpOnACollectorThatIsNotThere) {
  std::string url;
  { url = ScriptedCollector().url(); }
  SpanExporterOptions options = quick(url);
  options.attempts = 2;
  EXPECT_EQ(send(options, 1)->of(SpanFate::kUnreachable), 1u);
  options.url = parse_collector_url("http://collector.invalid:4318");
  options.attempts = 1;
  EXPECT_EQ(send(options, 1)->of(SpanFate::kUnreachable), 1u);
}

// The system's resolver cannot be interrupted.
TEST(SpanExporter, DoesNotWaitForASlowResolver) {
  const auto released = std::make_shared<std::promise<void>>();
  const auto calls = std::make_shared<std::atomic<int>>(0);
  SpanExporterOptions options = quick("http://collector.invalid:4318");
  options.resolve = [released = std::shared_future<void>(released->get_future()), calls](const std::string& host,
                                                                                         const std::string& port) {
    ++*calls;
    released.wait();
    return resolve_host(host, port);
  };
  options.timeout = 50ms;
  options.last_time = 100ms;
  auto counts = std::make_shared<SpanCounts>();
  const auto began = Clock::now();
  {
    SpanExporter exporter(options, counts);
    exporter.add(span_of("a"));
    EXPECT_TRUE(eventually([&] { return counts->of(SpanFate::kUnreachable) == 1; })) << "each attempt times out";
    exporter.add(span_of("b"));
  }
  EXPECT_LT(Clock::now() - began, 30s) << "the end does not wait for it either";
  EXPECT_EQ(counts->of(SpanFate::kUnreachable), 2u);
  EXPECT_EQ(*calls, 1) << "no second thread, while the first one waits";
  released->set_value();
}

TEST(SpanExporter, TimesOutOnACollectorThatSaysNothing) {
  ScriptedCollector collector([](int) { return CollectorReply{.delay = 60s}; });
  SpanExporterOptions options = quick(collector.url());
  options.timeout = 50ms;
  options.attempts = 1;
  EXPECT_EQ(send(options, 1)->of(SpanFate::kUnreachable), 1u);
}

TEST(SpanExporter, SpeaksTlsToACollectorThatItTrusts) {
  TemporaryFolder folder;
  write_certificate(folder, "localhost");
  ServerOptions server;
  server.ssl_certfile = folder.path("cert.pem");
  server.ssl_keyfile = folder.path("key.pem");
  server.hosts = {"localhost"};
  RunningServer running(server);
  SpanExporterOptions options = quick("https://localhost:" + std::to_string(running.port()));
  options.attempts = 1;
  EXPECT_EQ(send(options, 1)->of(SpanFate::kUnreachable), 1u) << "a certificate that nobody vouches for";
  ::setenv("SSL_CERT_FILE", server.ssl_certfile.c_str(), 1);
  EXPECT_EQ(send(options, 1)->of(SpanFate::kRefused), 1u) << "it answers: there is no such path";
  options.url = parse_collector_url("https://127.0.0.1:" + std::to_string(running.port()));
  EXPECT_EQ(send(options, 1)->of(SpanFate::kUnreachable), 1u) << "the certificate is another host's";
  ::unsetenv("SSL_CERT_FILE");
}

// ---- the flags

TEST(CollectorUrl, HasHostPortAndPath) {
  struct Case {
    const char *url, *host, *port, *target, *authority;
    bool secure;
  };
  for (const Case& c : {Case{"http://otel:4318/v1/traces", "otel", "4318", "/v1/traces", "otel:4318", false},
                        {"http://otel", "otel", "80", "/v1/traces", "otel", false},
                        {"https://otel/", "otel", "443", "/v1/traces", "otel", true},
                        {"https://[::1]:99/a/b?c=d", "::1", "99", "/a/b?c=d", "[::1]:99", true},
                        {"http://[::1]", "::1", "80", "/v1/traces", "[::1]", false},
                        {"http://otel?key=1", "otel", "80", "/?key=1", "otel", false}}) {
    const CollectorUrl url = parse_collector_url(c.url);
    EXPECT_EQ(url.host, c.host) << c.url;
    EXPECT_EQ(url.port, c.port) << c.url;
    EXPECT_EQ(url.target, c.target) << c.url;
    EXPECT_EQ(url.authority, c.authority) << c.url;
    EXPECT_EQ(url.secure, c.secure) << c.url;
  }
}

TEST(CollectorUrl, RefusesOthersThanHttpAndHttps) {
  for (const char* url :
       {"", "otel:4318", "grpc://otel:4317", "file:///etc/passwd", "HTTP://otel", "http://", "http:///v1", "http://:80",
        "http://otel:", "http://otel:0", "http://otel:65536", "http://otel:80x", "http://a b/", "http://a/\r\nX: y",
        "http://a/#b", "http://user:password@otel", "http://::1", "http://[::1", "http://\xff/"})
    EXPECT_NE(error_of([&] { parse_collector_url(url); }), "") << url;
  EXPECT_EQ(error_of([] { parse_collector_url("otel:4317"); }),
            "\"otel:4317\" is not supported, only http and https: use http://HOST:4318/v1/traces, or https:// (gRPC is "
            "not supported)");
}

TEST(CollectorHeaders, AreReadAndCannotBeginNewLines) {
  EXPECT_EQ(parse_collector_headers(""), HeaderList{});
  EXPECT_EQ(parse_collector_headers(" a=b , c = d%2Ce ,,f="), (HeaderList{{"a", "b"}, {"c", "d,e"}, {"f", ""}}));
  EXPECT_EQ(parse_collector_headers("a=b=c%"), (HeaderList{{"a", "b=c%"}}));
  for (const char* list : {"a", "=b", "a b=c", "a:=b", "a=b%0d%0aX: y", "a=\n", "a=%00", "a=%ff"}) {
    const std::string error = error_of([&] { parse_collector_headers(list); });
    EXPECT_NE(error, "") << list;
    EXPECT_EQ(error.find("X: y"), error.npos) << "values are secrets";
  }
}

// ---- in the server

class TracedServer : public ::testing::Test {
 protected:
  ServerOptions options() const {
    ServerOptions options;
    options.otlp_traces_endpoint = collector.url();
    options.version = "1.2";
    return options;
  }
  ScriptedCollector collector;
};

const char* const kParentLine = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";

TEST_F(TracedServer, SendsASpanForEachGeneration) {
  RunningServer running(options());
  running.model.cached_tokens = 2;
  HttpClient client(running.port());
  client.send(HttpClient::request("POST", kChatPath, chat_body(R"("temperature": 0.5, "max_tokens": 50, "n": 2)"),
                                  std::string(kParentLine) + "tracestate: congo=t61\r\nX-Request-Id: mine\r\n"));
  EXPECT_EQ(client.read_answer().status, 200);
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(client.post(kChatPath, "{").status, 400);
  ASSERT_TRUE(eventually([&] { return !collector.spans().empty(); }));
  const Json span = collector.spans().front();
  EXPECT_EQ(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(span["parentSpanId"], "b7ad6b7169203331");
  EXPECT_NE(span["spanId"], "b7ad6b7169203331");
  EXPECT_EQ(span["traceState"], "congo=t61");
  const auto attribute = [&](const char* key) { return ScriptedCollector::attribute(span, key); };
  EXPECT_EQ(attribute("gen_ai.request.id"), "mine");
  EXPECT_EQ(attribute("gen_ai.operation.name"), "chat");
  EXPECT_EQ(attribute("gen_ai.response.model"), "scripted");
  EXPECT_EQ(attribute("gen_ai.request.temperature"), 0.5);
  EXPECT_EQ(attribute("gen_ai.request.max_tokens"), "50");
  EXPECT_EQ(attribute("gen_ai.request.n"), "2");
  EXPECT_EQ(attribute("gen_ai.usage.completion_tokens"), "10") << "Hello, a token a letter, twice";
  EXPECT_EQ(attribute("gen_ai.response.finish_reasons")["values"].size(), 2u);
  EXPECT_EQ(attribute("http.response.status_code"), "200");
  EXPECT_TRUE(attribute("gen_ai.latency.time_to_first_token").is_number());
  EXPECT_LE(attribute("gen_ai.latency.time_to_first_token"), attribute("gen_ai.latency.e2e"));
  EXPECT_EQ(collector.spans().size(), 1u) << "neither of other paths nor of refused requests";
  // The collector has them before their exporter has its answer.
  EXPECT_TRUE(eventually([&] {
    return client.get("/metrics").body.find("quire:otlp_spans_total{result=\"exported\"} 1") != std::string::npos;
  }));
}

TEST_F(TracedServer, FollowsTheClientsDecisionWhatToSample) {
  RunningServer running(options());
  HttpClient client(running.port());
  const auto ask = [&](const std::string& headers) {
    client.send(HttpClient::request("POST", kChatPath, chat_body(), headers));
    EXPECT_EQ(client.read_answer().status, 200);
  };
  ask("traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00\r\nX-Request-Id: unsampled\r\n");
  ask(std::string(kParentLine) + kParentLine + "X-Request-Id: twice\r\n");
  ask("traceparent: nonsense\r\nX-Request-Id: malformed\r\n");
  ask("X-Request-Id: without\r\n");
  ASSERT_TRUE(eventually([&] { return collector.spans().size() == 3; }));
  std::set<std::string> ids, traces;
  for (const Json& span : collector.spans()) {
    ids.insert(ScriptedCollector::attribute(span, "gen_ai.request.id"));
    traces.insert(span["traceId"]);
    EXPECT_FALSE(span.contains("parentSpanId"));
  }
  EXPECT_EQ(ids, (std::set<std::string>{"twice", "malformed", "without"}));
  EXPECT_EQ(traces.size(), 3u) << "each begins a trace of its own";
}

TEST_F(TracedServer, MarksSpansOfFailedRequests) {
  RunningServer running(options());
  running.model.fail_at_token = 2;
  EXPECT_EQ(HttpClient(running.port()).post(kChatPath, chat_body()).status, 500);
  ASSERT_TRUE(eventually([&] { return !collector.spans().empty(); }));
  const Json span = collector.spans().front();
  EXPECT_EQ(span["status"]["code"], 2);
  EXPECT_EQ(ScriptedCollector::attribute(span, "error.type"), "500");
  EXPECT_EQ(ScriptedCollector::attribute(span, "gen_ai.response.finish_reasons")["values"][0]["stringValue"], "error");
}

TEST_F(TracedServer, HasASpanOfAClientThatLeft) {
  RunningServer running(options());
  running.model.endless = true;
  running.model.token_time = 1ms;
  {
    HttpClient client(running.port());
    client.send(HttpClient::request("POST", kChatPath, chat_body(R"("max_tokens": 100000)")));
    ASSERT_TRUE(eventually([&] { return running.model.submitted() > 0; }));
  }
  ASSERT_TRUE(eventually([&] { return !collector.spans().empty(); }));
  const Json span = collector.spans().front();
  EXPECT_EQ(ScriptedCollector::attribute(span, "http.response.status_code"), "499");
  EXPECT_EQ(span["status"]["code"], 2);
}

TEST(Server, RefusesACollectorWithoutAUrl) {
  ServerOptions options;
  options.port = 0;
  options.otlp_traces_endpoint = "otel:4317";
  EXPECT_NE(error_of([&] { Server server(options); }).find("gRPC is not supported"), std::string::npos);
}

TEST(Metrics, HaveNoSpansWithoutACollector) {
  RunningServer running;
  EXPECT_EQ(HttpClient(running.port()).get("/metrics").body.find("otlp_spans"), std::string::npos);
}

}  // namespace
}  // namespace quire
