// The dashboard over loopback: its files, its keys, its stream, and readers that misbehave.
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "server/endpoints/dashboard_files.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

constexpr std::string_view kEventsPath = "/dashboard/events";

// The model's snapshots have a new number each time, and `cells` runs of pages, so that events can be large.
void script_snapshots(ScriptedCompleter& model, size_t cells = 0) {
  model.on_snapshot = [cells, number = std::make_shared<std::atomic<uint64_t>>(0)] {
    EngineSnapshot s;
    s.number = ++*number;
    s.running = 1;
    for (size_t i = 0; i < cells; ++i)
      s.pool.cells.push_back({.use = UnitUse::kOwned, .users = static_cast<uint16_t>(i)});
    return s;
  };
}

// A server whose snapshots are scripted before it has readers.
struct Watched {
  explicit Watched(ServerOptions options = {}, size_t cells = 0) : running(options) {
    script_snapshots(running.model, cells);
  }
  RunningServer running;
};

TEST(Dashboard, ServesItsFilesWithAPolicyThatAllowsOnlyThem) {
  RunningServer running;
  HttpClient client(running.port());
  std::set<std::string_view> names;
  for (const DashboardFile& file : dashboard_files()) {
    names.insert(file.name);
    const HttpAnswer answer = client.get("/dashboard/" + std::string(file.name));
    EXPECT_EQ(answer.status, 200) << file.name;
    EXPECT_EQ(answer.body, file.content);
    EXPECT_EQ(answer.headers.at("x-content-type-options"), "nosniff");
    const std::string policy = answer.headers.at("content-security-policy");
    EXPECT_NE(policy.find("default-src 'none'"), policy.npos);
    EXPECT_NE(policy.find("script-src 'self'"), policy.npos);
    EXPECT_EQ(policy.find("unsafe"), policy.npos);
    EXPECT_EQ(policy.find('*'), policy.npos);
  }
  for (const std::string path : {"/dashboard", "/dashboard/"}) {
    const HttpAnswer page = client.get(path);
    EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
    EXPECT_NE(page.body.find("<title>Quire</title>"), page.body.npos);
  }
  EXPECT_EQ(client.get("/dashboard/style.css").headers.at("content-type"), "text/css; charset=utf-8");
  EXPECT_EQ(client.get("/dashboard/app.js").headers.at("content-type"), "text/javascript; charset=utf-8");
  for (const std::string path :
       {"/dashboard/none.js", "/dashboard/../app.js", "/dashboard/%2e%2e/app.js", "/dashboard//app.js"}) {
    EXPECT_EQ(client.get(path).status, 404) << path;
  }
  EXPECT_EQ(client.post("/dashboard", "{}").status, 405);
  EXPECT_NE(client.get("/").body.find("href=\"/dashboard\""), std::string::npos);
}

// Modules import files that exist, nothing comes from elsewhere, and nothing parses HTML or runs text.
TEST(Dashboard, FilesReferToEachOtherAndParseNoText) {
  std::set<std::string> names;
  for (const DashboardFile& file : dashboard_files()) names.insert(std::string(file.name));
  const std::regex import_from(R"(from '\./([^']+)')"), reference(R"re((?:src|href)="/dashboard/([^"]+)")re");
  const std::regex elsewhere(R"(https?://(?!www\.w3\.org/2000/svg|invalid\.invalid))");
  const std::regex forbidden(
      R"(innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc)");
  int references = 0;
  for (const DashboardFile& file : dashboard_files()) {
    const std::string text(file.content);
    EXPECT_FALSE(std::regex_search(text, elsewhere)) << file.name;
    EXPECT_FALSE(std::regex_search(text, forbidden)) << file.name;
    for (const std::regex& pattern : {import_from, reference}) {
      for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at, ++references)
        EXPECT_TRUE(names.contains((*at)[1])) << file.name << " refers to " << (*at)[1];
    }
  }
  EXPECT_GT(references, 20);
}

TEST(Dashboard, StreamsEventsUntilTheClientLeaves) {
  Watched watched;
  const LiveFeed& feed = watched.running.server->models().feed();
  {
    HttpClient client(watched.running.port());
    client.send(HttpClient::request("GET", kEventsPath));
    ASSERT_TRUE(client.wait_for_bytes(1500));
    EXPECT_EQ(feed.readers(), 1u);
  }
  EXPECT_TRUE(eventually([&] { return feed.readers() == 0; }));
  // HTTP/1.0 has no chunks.
  HttpClient old(watched.running.port());
  old.send("GET /dashboard/events HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(old.wait_for_bytes(1500));
  watched.running.server->stop();
  const auto text = old.read_to_end();
  ASSERT_TRUE(text);
  EXPECT_EQ(text->find("chunked"), text->npos);
  EXPECT_NE(text->find("\r\n\r\ndata: {\"number\":"), text->npos);
  EXPECT_TRUE(text->ends_with("}\n\n"));
}

TEST(Dashboard, StreamsEndWhenTheServerStops) {
  Watched watched;
  HttpClient client(watched.running.port());
  client.send(HttpClient::request("GET", kEventsPath));
  ASSERT_TRUE(client.wait_for_bytes(800));
  const auto begin = std::chrono::steady_clock::now();
  watched.running.server->stop();
  const HttpAnswer answer = client.read_answer();
  EXPECT_TRUE(answer.whole) << "the last chunk";
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  const auto events = answer.events();
  ASSERT_GE(events.size(), 1u);
  EXPECT_TRUE(events[0].contains("model"));
}

TEST(Dashboard, HeadDoesNotStream) {
  Watched watched;
  HttpClient client(watched.running.port());
  const HttpAnswer head = client.call("HEAD", kEventsPath);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(client.get("/health").status, 200);
}

TEST(Dashboard, OnlyTheStreamNeedsAKey) {
  ServerOptions options;
  options.api_keys = {"sk-1"};
  Watched watched(options);
  HttpClient client(watched.running.port());
  EXPECT_EQ(client.get("/dashboard").status, 200);
  EXPECT_EQ(client.get("/dashboard/app.js").status, 200);
  EXPECT_EQ(client.get("/v1/dashboard/app.js").status, 200);
  EXPECT_EQ(client.get(kEventsPath).status, 401);
  EXPECT_EQ(client.get("/v1/models/x").status, 401) << "another path with an argument";
  client.send(HttpClient::request("GET", kEventsPath, {}, "Authorization: Bearer sk-1\r\n"));
  EXPECT_TRUE(client.wait_for_bytes(1000));
}

TEST(Dashboard, CanBeSwitchedOff) {
  ServerOptions options;
  options.dashboard = false;
  Watched watched(options);
  HttpClient client(watched.running.port());
  for (const std::string_view path :
       {std::string_view("/dashboard"), std::string_view("/dashboard/app.js"), kEventsPath}) {
    const HttpAnswer answer = client.get(path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_NE(answer.body.find("--no-dashboard"), answer.body.npos);
  }
  EXPECT_EQ(client.get("/").body.find("dashboard"), std::string::npos);
}

constexpr std::string_view kExplainPath = "/dashboard/explain";

// Of a text of two tokens; tokens 65 and 66 are the most probable next ones.
Explanation scripted_explanation() {
  Explanation e;
  e.layers = 3;
  e.layer = 2;
  e.heads = 4;
  e.head = 1;
  e.embeddings = {std::vector<float>(20, 1.0f), std::vector<float>(20, -1.0f)};
  e.path = {{"embedding", std::vector<float>(20, -1.0f)}, {"query", {3, -4}}};
  e.keys = {{3, 4}, {0, 1}};
  e.values = {{1, 0}, {0, 0}};
  e.scores = {0.5f, -0.5f};
  e.weights = {0.75f, 0.25f};
  e.residual_norms = {1, 2, 3, 4.123456789};
  e.logits.assign(256, -std::numeric_limits<float>::infinity());
  e.logits[66] = e.logits[65] = 2;
  e.logits[67] = std::numeric_limits<float>::quiet_NaN();
  return e;
}

TEST(Dashboard, ExplainsAShortText) {
  RunningServer running;
  ExplainRequest asked;
  int inside = 0;
  running.model.on_explain = [&](const ExplainRequest& request) {
    asked = request;
    inside = running.server->models().admission()->inside();
    return scripted_explanation();
  };
  HttpClient client(running.port());
  const HttpAnswer answer = client.post(kExplainPath, R"({"text": "<b", "layer": 2, "head": 1})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(asked.tokens, (TokenIds{'<', 'b'}));
  EXPECT_EQ(asked.layer, 2);
  EXPECT_EQ(asked.head, 1);
  EXPECT_EQ(inside, 1) << "it is admitted as an answer";
  EXPECT_EQ(running.server->models().admission()->inside(), 0);
  const Json json = answer.json();
  EXPECT_EQ(json["tokens"], Json::parse(R"([{"id": 60, "text": "<"}, {"id": 98, "text": "b"}])"));
  EXPECT_EQ(json["embeddings"].size(), 2u);
  EXPECT_EQ(json["path"][0]["values"].size(), 16u);
  EXPECT_EQ(json["path"][0]["size"], 20);
  EXPECT_EQ(json["path"][0]["norm"], 4.4721);
  EXPECT_EQ(json["path"][1], Json::parse(R"({"size": 2, "norm": 5, "values": [3, -4], "place": "query"})"));
  EXPECT_EQ(json["attention"], Json::parse(R"({"scores": [0.5, -0.5], "weights": [0.75, 0.25], "sink": 0,
      "key_norms": [5, 1], "value_norms": [1, 0]})"));
  EXPECT_EQ(json["residual_norms"], Json::parse("[1, 2, 3, 4.1235]"));
  EXPECT_EQ(json["top_tokens"].size(), 10u);
  EXPECT_EQ(json["top_tokens"][0], Json::parse(R"({"id": 65, "text": "A", "logit": 2.0, "probability": 0.5})"));
  EXPECT_EQ(json["top_tokens"][1]["id"], 66);
  EXPECT_EQ(json["top_tokens"][2]["logit"], nullptr) << "there is no third token";
  EXPECT_EQ(running.model.submitted(), 0u);
}

TEST(Dashboard, SaysWhyItCannotExplain) {
  RunningServer running;
  HttpClient client(running.port());
  const auto refusal = [&](const std::string& body, int status) {
    const HttpAnswer answer = client.post(kExplainPath, body);
    EXPECT_EQ(answer.status, status) << body;
    return answer.json()["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(refusal("{}", 400), "text: is required");
  EXPECT_EQ(refusal(R"({"text": ""})", 400), "text: has 0 tokens; it must have 1 to 16");
  EXPECT_EQ(refusal(R"({"text": "seventeen letters"})", 400), "text: has 17 tokens; it must have 1 to 16");
  EXPECT_EQ(refusal(R"({"text": ")" + std::string(1025, 'a') + "\"}", 400),
            "text: has 1025 bytes; at most 1024 are allowed");
  for (const char* body : {R"({"text": 5})", R"({"text": ["a"]})", R"({"text": "a", "layer": -1})",
                           R"({"text": "a", "layer": 1.5})", R"({"text": "a", "head": "x"})",
                           R"({"text": "a", "head": 65536})", R"({"text": "a", "layer": 1e30})", "[]", "{"})
    refusal(body, 400);
  EXPECT_EQ(client.get(kExplainPath).status, 405);
  running.model.on_explain = [](const ExplainRequest&) -> Explanation { throw invalid("layer {} does not exist", 7); };
  EXPECT_EQ(refusal(R"({"text": "a", "layer": 7})", 400), "layer 7 does not exist");
  running.model.on_explain = [](const ExplainRequest&) -> Explanation { throw no_resource("no memory"); };
  EXPECT_EQ(refusal(R"({"text": "a"})", 503), "no memory");
  EXPECT_EQ(running.server->models().admission()->inside(), 0);
}

TEST(Dashboard, ExplainsOnlyWithAKeyAndIfItIsOn) {
  ServerOptions options;
  options.api_keys = {"sk-1"};
  RunningServer keyed(options);
  HttpClient client(keyed.port());
  EXPECT_EQ(client.post(kExplainPath, R"({"text": "a"})").status, 401);
  options.api_keys.clear();
  options.dashboard = false;
  RunningServer off(options);
  HttpClient other(off.port());
  const HttpAnswer answer = other.post(kExplainPath, R"({"text": "a"})");
  EXPECT_EQ(answer.status, 404);
  EXPECT_NE(answer.body.find("--no-dashboard"), answer.body.npos);
}

TEST(Dashboard, GivesUpReadersThatDoNotRead) {
  ServerOptions options;
  options.write_timeout = std::chrono::milliseconds(300);
  Watched watched(options, 20'000);
  const LiveFeed& feed = watched.running.server->models().feed();
  std::vector<std::unique_ptr<HttpClient>> stuck;
  for (int i = 0; i < 8; ++i) {
    stuck.push_back(std::make_unique<HttpClient>(watched.running.port(), 4096));
    stuck.back()->send(HttpClient::request("GET", kEventsPath));
  }
  EXPECT_TRUE(eventually([&] { return feed.readers() == 8; }));
  HttpClient other(watched.running.port());
  EXPECT_EQ(other.get("/health").status, 200);
  EXPECT_TRUE(eventually([&] { return feed.readers() == 0; })) << "though all of them are still connected";
}

TEST(Dashboard, RefusesReadersBeyondTheLimitAndServesEverybodyElse) {
  Watched watched;
  const LiveFeed& feed = watched.running.server->models().feed();
  std::vector<std::unique_ptr<HttpClient>> readers;
  const size_t most = LiveFeedLimits{}.most_readers;
  while (readers.size() < most) {
    readers.push_back(std::make_unique<HttpClient>(watched.running.port()));
    ASSERT_TRUE(readers.back()->connected);
    readers.back()->send(HttpClient::request("GET", kEventsPath));
  }
  ASSERT_TRUE(eventually([&] { return feed.readers() == most; }));
  for (const auto& reader : readers) ASSERT_TRUE(reader->wait_for_bytes(500));
  HttpClient client(watched.running.port());
  const HttpAnswer refused = client.get(kEventsPath);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "5");
  EXPECT_EQ(client.post(kChatPath, chat_body()).status, 200);
  readers.clear();
  EXPECT_TRUE(eventually([&] { return feed.readers() == 0; }));
}

}  // namespace
}  // namespace quire
