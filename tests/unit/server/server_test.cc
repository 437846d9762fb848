// The server over loopback: its answers.
#include <gtest/gtest.h>

#include <atomic>

#include "unit/server/running_server.h"

namespace quire {
namespace {

TEST(Server, AnswersAChat) {
  RunningServer running;
  HttpClient client(running.port());
  const HttpAnswer answer = client.post(kChatPath, chat_body(R"("seed": 7, "temperature": 0)"));
  ASSERT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  const Json json = answer.json();
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(json["model"], "scripted");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "Hello");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["usage"], Json::parse(R"({"prompt_tokens": 2, "completion_tokens": 5, "total_tokens": 7,
                                            "prompt_tokens_details": {"cached_tokens": 0}})"));
  EXPECT_EQ(running.model.last_sampling(), (SamplingParams{.temperature = 0, .seed = 7}));
}

TEST(Server, DrawsASeedForEachRequestWithoutOne) {
  RunningServer running;
  HttpClient client(running.port());
  client.post(kChatPath, chat_body());
  const uint64_t first = running.model.last_sampling().seed;
  client.post(kChatPath, chat_body());
  const uint64_t second = running.model.last_sampling().seed;
  EXPECT_NE(first, second);
  client.post(kChatPath, chat_body(R"("seed": -1)"));
  EXPECT_NE(running.model.last_sampling().seed, UINT64_MAX);
  EXPECT_NE(running.model.last_sampling().seed, second);
}

TEST(Server, AnswersSeveralPromptsAndChoicesInOrder) {
  RunningServer running;
  HttpClient client(running.port());
  const Json json =
      client.post(kCompletionPath, R"({"prompt": ["ab", [65, 66, 67]], "n": 2, "echo": true, "max_tokens": 3})").json();
  ASSERT_EQ(json["choices"].size(), 4u);
  const char* texts[] = {"abHel", "abHel", "ABCHel", "ABCHel"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(json["choices"][i]["text"], texts[i]);
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["finish_reason"], "length");
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(json["usage"]["completion_tokens"], 12);
}

TEST(Server, StreamsAChatAndKeepsTheConnectionOpen) {
  RunningServer running;
  HttpClient client(running.port());
  for (int round = 0; round < 3; ++round) {
    const HttpAnswer answer =
        client.post(kChatPath, chat_body(R"("stream": true, "n": 2, "stream_options": {"include_usage": true})"));
    ASSERT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.whole);
    EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream; charset=utf-8");
    const auto all = events(answer.body);
    ASSERT_GE(all.size(), 4u);
    std::string texts[2];
    int roles = 0, finishes = 0;
    for (size_t i = 0; i + 2 < all.size(); ++i) {
      const Json choice = Json::parse(all[i])["choices"][0];
      if (choice["delta"].contains("role")) ++roles;
      if (choice["delta"].contains("content")) texts[choice["index"].get<int>()] += choice["delta"]["content"];
      if (choice["finish_reason"] == "stop") ++finishes;
    }
    EXPECT_EQ(texts[0], "Hello");
    EXPECT_EQ(texts[1], "Hello");
    EXPECT_EQ(roles, 2);
    EXPECT_EQ(finishes, 2);
    EXPECT_EQ(Json::parse(all[all.size() - 2])["usage"]["completion_tokens"], 10);
    EXPECT_EQ(all.back(), "[DONE]");
  }
}

TEST(Server, StreamsToHttp10UntilTheConnectionCloses) {
  RunningServer running;
  HttpClient client(running.port());
  const std::string body = chat_body(R"("stream": true)");
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
              body);
  const HttpAnswer answer = client.read_answer();
  EXPECT_FALSE(answer.headers.contains("transfer-encoding"));
  EXPECT_EQ(events(answer.body).back(), "[DONE]");
}

TEST(Server, AnswersPipelinedRequestsInOrder) {
  RunningServer running;
  running.model.token_time = std::chrono::microseconds(200);
  HttpClient client(running.port());
  std::string all;
  for (int i = 1; i <= 20; ++i) {
    all += i % 3 == 0 ? HttpClient::request("GET", "/v1/models")
                      : HttpClient::request("POST", kCompletionPath,
                                            R"({"prompt": "x", "max_tokens": )" + std::to_string(i) +
                                                (i % 2 ? R"(, "stream": true})" : "}"));
  }
  client.send(all);
  for (int i = 1; i <= 20; ++i) {
    const HttpAnswer answer = client.read_answer();
    ASSERT_EQ(answer.status, 200) << i;
    if (i % 3 == 0) {
      EXPECT_EQ(answer.json()["object"], "list");
    } else if (i % 2) {
      EXPECT_EQ(events(answer.body).back(), "[DONE]");
    } else {
      EXPECT_EQ(answer.json()["usage"]["completion_tokens"], std::min(i, 5));
    }
  }
}

TEST(Server, ListsItsModels) {
  RunningServer running({{.model_names = {"org/a b", "second"}}});
  HttpClient client(running.port());
  const Json list = client.get("/v1/models").json();
  EXPECT_EQ(list["data"][0]["id"], "org/a b");
  EXPECT_EQ(list["data"][1]["object"], "model");
  EXPECT_EQ(client.get("/v1/models/org/a%20b").json()["id"], "org/a b");
  EXPECT_EQ(client.get("/v1/models/second?x=1").status, 200);
  EXPECT_EQ(client.get("/v1/models/third").status, 404);
  EXPECT_EQ(client.post(kChatPath, chat_body()).json()["model"], "org/a b");
  EXPECT_EQ(client.post(kChatPath, chat_body(R"("model": "second")")).json()["model"], "second");
  EXPECT_EQ(client.post(kChatPath, chat_body(R"("model": "scripted")")).status, 404);
}

TEST(Server, ReportsHealthAndMetrics) {
  RunningServer running;
  HttpClient client(running.port());
  EXPECT_EQ(client.get("/health").body, R"({"status":"ok"})");
  const HttpAnswer head = client.call("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_TRUE(head.body.empty());
  client.post(kChatPath, chat_body());
  client.post(kChatPath, chat_body(R"("max_tokens": 2, "n": 2)"));
  const std::string text = client.get("/metrics").body;
  for (const char* line : {
           "quire:prompt_tokens_total{model_name=\"scripted\"} 4\n",
           "quire:generation_tokens_total{model_name=\"scripted\"} 9\n",
           "quire:request_success_total{finished_reason=\"stop\",model_name=\"scripted\"} 1\n",
           "quire:request_success_total{finished_reason=\"length\",model_name=\"scripted\"} 2\n",
           "quire:request_success_total{finished_reason=\"abort\",model_name=\"scripted\"} 0\n",
           "quire:num_preemptions_total{model_name=\"scripted\"} 3\n",
           "quire:page_store_lost_pages_total{model_name=\"scripted\",reason=\"dropped\"} 4\n",
           "quire:page_store_lost_pages_total{model_name=\"scripted\",reason=\"write_failure\"} 5\n",
           "quire:page_store_lost_pages_total{model_name=\"scripted\",reason=\"damaged\"} 6\n",
           "quire:kv_cache_usage_perc{model_name=\"scripted\"} 0.25\n",
           "quire:time_to_first_token_seconds_count{model_name=\"scripted\"} 3\n",
           "quire:e2e_request_latency_seconds_bucket{model_name=\"scripted\",le=\"0.3\"} 3\n",
           "quire:prefix_cache_queries_total{model_name=\"scripted\"} 40\n",
           "quire:prefix_cache_hits_total{model_name=\"scripted\"} 30\n",
           "quire:engine_step_seconds_total{model_name=\"scripted\",phase=\"decode\"} 1.5\n",
           "quire:decode_read_bytes_total{model_name=\"scripted\"} 6000000000\n",
           "quire:read_bandwidth_limit_bytes_per_second{model_name=\"scripted\"} 10000000000\n",
           "quire:request_queue_time_seconds_sum{model_name=\"scripted\"} 0.0015\n",
           "quire:request_prefill_time_seconds_count{model_name=\"scripted\"} 3\n",
           "quire:request_decode_time_seconds_bucket{model_name=\"scripted\",le=\"0.3\"} 3\n",
           "quire:cache_config_info{block_size=\"16\",bytes_per_token=\"1088\",cache_dtype=\"int8\",model_name="
           "\"scripted\",num_gpu_blocks=\"64\"} 1\n",
           "quire:num_requests_waiting{model_name=\"scripted\"} 0\n",
           "quire:spec_decode_num_drafts_total{drafter=\"ngram\",model_name=\"scripted\"} 2\n",
           "quire:spec_decode_num_draft_tokens_total{drafter=\"ngram\",model_name=\"scripted\"} 3\n",
           "quire:spec_decode_num_accepted_tokens_total{drafter=\"ngram\",model_name=\"scripted\"} 2\n",
           "quire:spec_decode_num_accepted_tokens_per_pos_total{drafter=\"ngram\",model_name=\"scripted\",position="
           "\"0\"} 2\n",
           "quire:spec_decode_num_accepted_tokens_per_pos_total{drafter=\"ngram\",model_name=\"scripted\",position="
           "\"1\"} 0\n",
           "quire:spec_decode_draft_seconds_total{drafter=\"ngram\",model_name=\"scripted\"} 0.25\n",
           "quire:spec_decode_drafter_errors_total{drafter=\"ngram\",model_name=\"scripted\"} 7\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

// The names that llm-d and the Gateway API inference extension look for, and the value of a gauge with these labels.
TEST(Server, TellsRoutersItsLoadUnderVllmsNames) {
  RunningServer running;
  running.model.takes_adapters = true;
  HttpClient client(running.port());
  std::string text = client.get("/metrics").body;
  for (const char* line : {
           "# TYPE vllm:num_requests_waiting gauge\n",
           "vllm:num_requests_waiting{model_name=\"scripted\"} 0\n",
           "vllm:num_requests_running{model_name=\"scripted\"} 0\n",
           "vllm:kv_cache_usage_perc{model_name=\"scripted\"} 0.25\n",
           "vllm:cache_config_info{block_size=\"16\",bytes_per_token=\"1088\",cache_dtype=\"int8\",model_name="
           "\"scripted\",num_gpu_blocks=\"64\"} 1\n",
           "vllm:lora_requests_info{max_lora=\"3\",model_name=\"scripted\",running_lora_adapters=\"\","
           "waiting_lora_adapters=\"\"} 1",
           "quire:lora_requests_info{max_lora=\"3\"",
       })
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  for (const char* name : {"poet", "clerk"}) running.model.add_adapter({.name = name, .path = name});
  text = client.get("/metrics").body;
  EXPECT_NE(
      text.find("vllm:lora_requests_info{max_lora=\"3\",model_name=\"scripted\",running_lora_adapters=\"poet,clerk\","),
      std::string::npos)
      << text;
  EXPECT_EQ(text.find("running_lora_adapters=\"\""), std::string::npos) << "one series, that of now";
  EXPECT_EQ(text.find("vllm:request_success"), std::string::npos) << "only what routers read";
}

TEST(Server, HasNoNamesOfVllmUnderAPrefixThatWasChosen) {
  ServerOptions options;
  options.metrics_prefix = "quire_";
  RunningServer running(options);
  EXPECT_EQ(HttpClient(running.port()).get("/metrics").body.find("vllm:"), std::string::npos);
}

TEST(Server, ExplainsErrorsAndKeepsTheConnectionOpen) {
  RunningServer running;
  HttpClient client(running.port());
  const HttpAnswer nothing = client.get("/v2/nothing");
  EXPECT_EQ(nothing.status, 404);
  EXPECT_EQ(nothing.json()["error"]["code"], "unknown_url");
  const HttpAnswer method = client.call("DELETE", "/v1/chat/completions");
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.headers.at("allow"), "POST");
  EXPECT_EQ(client.call("POST", "/health", "{}").headers.at("allow"), "GET, HEAD");
  EXPECT_EQ(client.call("BREW", "/health").status, 405);
  EXPECT_EQ(client.post(kChatPath, "{").status, 400);
  EXPECT_EQ(client.post(kChatPath, chat_body(R"("tools": [{}])")).error_param(), "tools[0].function");
  EXPECT_EQ(
      client.post(kChatPath, R"({"messages": [{"role": "user", "content": "refuse"}]})").json()["error"]["message"],
      "roles must alternate");
  EXPECT_EQ(client.post(kCompletionPath, R"({"prompt": ""})").error_param(), "prompt");
  EXPECT_EQ(client.post(kCompletionPath, "{\"prompt\": \"" + std::string(100'000, 'x') + "\"}").json()["error"]["code"],
            "context_length_exceeded");
  EXPECT_EQ(
      client.post(kCompletionPath, "{\"truncate_prompt_tokens\": 3, \"prompt\": \"" + std::string(100'000, 'x') + "\"}")
          .json()["usage"]["prompt_tokens"],
      3);
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(running.server->models().admission()->inside(), 0);
}

TEST(Server, AcceptsUrlsAndPercentEncodedPaths) {
  ServerOptions options;
  options.model_names = {"a/b c"};
  RunningServer running(options);
  HttpClient client(running.port());
  for (const char* target : {"/v1/models?x=%20", "/v1/%6dodels", "http://example.org/v1/models",
                             "HTTP://[::1]:1/v1/models?y", "/v1/models/a%2Fb%20c", "/v1/models/a/b%20c#z"}) {
    EXPECT_EQ(client.get(target).status, 200) << target;
  }
  for (const char* target :
       {"http://example.org", "://", "*", "/v1/models%3Fx", "/v1%", "x/v1/models", "//v1/models"}) {
    EXPECT_EQ(client.get(target).status, 404) << target;
  }
}

TEST(Server, ReturnsTheRequestId) {
  RunningServer running;
  HttpClient client(running.port());
  EXPECT_EQ(client.call("GET", "/health", {}, "X-Request-Id: abc-1\r\n").headers.at("x-request-id"), "abc-1");
  const std::string drawn =
      client.call("GET", "/health", {}, "X-Request-Id: " + std::string(200, 'x') + "\r\n").headers.at("x-request-id");
  EXPECT_EQ(drawn.size(), 32u);
}

TEST(Server, ReportsEngineErrorsAsAStatusBeforeAStreamBegins) {
  RunningServer running;
  running.model.fail_at_token = 0;
  HttpClient client(running.port());
  for (const char* fields : {"", R"("stream": true)"}) {
    const HttpAnswer answer = client.post(kChatPath, chat_body(fields));
    EXPECT_EQ(answer.status, 500);
    EXPECT_EQ(answer.json()["error"]["message"], "the script failed");
  }
}

TEST(Server, EndsAFailedStreamWithAnErrorInsteadOfDone) {
  RunningServer running;
  running.model.fail_at_token = 3;
  running.model.token_time = std::chrono::milliseconds(20);  // so that the stream has begun
  HttpClient client(running.port());
  const HttpAnswer answer = client.post(kChatPath, chat_body(R"("stream": true)"));
  ASSERT_EQ(answer.status, 200);
  const auto all = events(answer.body);
  EXPECT_EQ(Json::parse(all.back())["error"]["message"], "the script failed");
  for (const std::string& event : all) EXPECT_EQ(event.find("\"finish_reason\":\"stop\""), event.npos);
  EXPECT_NE(client.read_to_end(), std::nullopt);
}

TEST(Server, CancelsTheOtherPromptsAfterASubmitError) {
  RunningServer running;
  running.model.endless = true;
  running.model.on_submit = [](const Request& request) {
    if (request.prompt.size() == 2) throw invalid("two tokens are too many");
  };
  HttpClient client(running.port());
  const HttpAnswer answer = client.post(kCompletionPath, R"({"prompt": ["a", "b", "cc"], "max_tokens": 100000})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["message"], "two tokens are too many");
  EXPECT_TRUE(eventually([&] { return running.server->models().admission()->inside() == 0; }));
  EXPECT_EQ(running.model.cancels(), 2);
}

TEST(Server, GivesEachOf64ClientsItsOwnAnswer) {
  ServerOptions options;
  options.threads = 2;
  RunningServer running(options);
  running.model.answer = "The quick brown fox jumps over the lazy dog. ";
  running.model.endless = true;
  std::atomic<int> right{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 64; ++c) {
    clients.emplace_back([&, c] {
      HttpClient client(running.port());
      for (int round = 0; round < 4; ++round) {
        const int tokens = 20 + c * 3 + round;
        const bool stream = (c + round) % 2;
        const HttpAnswer answer =
            client.post(kCompletionPath, R"({"prompt": "x", "max_tokens": )" + std::to_string(tokens) +
                                             (stream ? R"(, "stream": true})" : "}"));
        std::string text;
        if (!stream) {
          text = answer.json()["choices"][0]["text"];
        } else {
          for (const std::string& event : events(answer.body)) {
            if (event != "[DONE]") text += Json::parse(event)["choices"][0]["text"].get<std::string>();
          }
        }
        std::string expected;
        while (expected.size() < static_cast<size_t>(tokens)) expected += running.model.answer;
        right += text == expected.substr(0, static_cast<size_t>(tokens));
      }
    });
  }
  for (std::thread& thread : clients) thread.join();
  EXPECT_EQ(right, 256);
}

TEST(Server, ShowsAPageAtTheRoot) {
  ServerOptions options;
  options.model_names = {"a<b>&\"c"};
  options.version = "1.2";
  RunningServer running(options);
  HttpClient client(running.port());
  const HttpAnswer page = client.call("GET", "/", {}, "X-Request-Id: 1\r\n");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  for (const char* part : {"Quire 1.2", "a&lt;b&gt;&amp;&#34;c", "<code>http://127.0.0.1/v1</code>", "/metrics",
                           "/openapi.json", "/health"}) {
    EXPECT_NE(page.body.find(part), std::string::npos) << part << page.body;
  }
  EXPECT_EQ(page.body.find("<script"), std::string::npos);
  EXPECT_EQ(client.post("/", "{}").status, 405);
  options.api_keys = {"sk-1"};
  RunningServer closed(options);
  const std::string secretive = HttpClient(closed.port()).get("/").body;
  EXPECT_NE(secretive.find("API key"), std::string::npos);
  EXPECT_EQ(secretive.find("a&lt;"), std::string::npos);
  EXPECT_EQ(secretive.find("1.2"), std::string::npos);
}

TEST(Server, AnswersSmallRequestsWhileALargeBodyIsPrepared) {
  RunningServer running;
  std::atomic<bool> begun{false}, finish{false};
  running.model.on_encode = [&](std::string_view text) {
    if (text.size() < 70'000) return;
    begun = true;
    while (!finish) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  HttpClient large(running.port());
  large.send(HttpClient::request("POST", kCompletionPath, "{\"prompt\": \"" + std::string(70'000, 'x') + "\"}"));
  ASSERT_TRUE(eventually([&] { return begun.load(); }));
  EXPECT_EQ(HttpClient(running.port()).post(kChatPath, chat_body()).status, 200);
  finish = true;
  EXPECT_EQ(large.read_answer().status, 200);
}

TEST(Server, ClosesTheConnectionIfAnsweringFails) {
  std::atomic<bool> gone{true};
  RunningServer running;
  running.model.on_token_bytes = [&] {
    if (gone) throw std::runtime_error("the vocabulary is gone");
  };
  HttpClient client(running.port());
  EXPECT_EQ(client.post(kCompletionPath, R"({"prompt": "a", "logprobs": 1})").status, 0);
  EXPECT_TRUE(eventually([&] { return running.server->models().admission()->inside() == 0; }));
  gone = false;
  HttpClient other(running.port());
  EXPECT_EQ(other.post(kCompletionPath, R"({"prompt": "a", "logprobs": 1})").status, 200);
}

}  // namespace
}  // namespace quire
