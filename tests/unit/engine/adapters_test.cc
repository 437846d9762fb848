// Requests with LoRA adapters: answers do not depend on other requests, and adapters come and go while others answer.

#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <limits>
#include <memory>

#include "base/error.h"
#include "unit/engine/drafters.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"
#include "unit/model/edited_adapter.h"

namespace quire {
namespace {

using testing::Answer;
using testing::answer;
using testing::answers_together;
using testing::EditedAdapter;
using testing::expect_same;
using testing::random_tokens;

// Of models/llama: all linears, some of them, and all linears with a larger rank than the file's was.
struct TestAdapters {
  EditedAdapter all{"llama"}, some{"llama_rslora"}, other{"llama"};
  std::vector<AdapterOption> options;

  TestAdapters() {
    all.draw(1);
    some.draw(2);
    other.draw(3);
    options = {{"all", all.write()}, {"some", some.write()}, {"other", other.write()}};
  }
};

EngineOptions llama_options(std::vector<AdapterOption> adapters) {
  EngineOptions o;
  testing::ignore_time(o);
  o.model = (golden_dir() / "models/llama").string();
  o.threads = 2;
  o.max_num_seqs = 16;
  o.adapters = std::move(adapters);
  return o;
}

Request adapted(TokenIds prompt, std::string adapter, int max_tokens = 20) {
  Request r = seeded_request(std::move(prompt), max_tokens);
  r.adapter = std::move(adapter);
  return r;
}

// Requests of different lengths, for the model itself and for each adapter in turn. Answers take several pages, so the
// sequences outgrow a small cache.
std::vector<Request> adapter_requests(int count) {
  const std::vector<std::string> names = {"", "all", "some", "other", "all"};
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i)
    requests.push_back(adapted(random_tokens(static_cast<unsigned>(i / 2), 5 + 9 * i % 50),
                               names[static_cast<size_t>(i) % names.size()], 60));
  return requests;
}

std::vector<Answer> answers_alone(const std::vector<Request>& requests, const std::vector<AdapterOption>& adapters) {
  std::vector<Answer> alone;
  for (const Request& r : requests) {
    std::vector<AdapterOption> own;
    for (const AdapterOption& a : adapters)
      if (a.name == r.adapter) own.push_back(a);
    EngineOptions o = llama_options(own);
    o.max_num_seqs = 1;
    o.prefix_cache = false;
    Engine engine(o);
    alone.push_back(answer(engine, r));
  }
  return alone;
}

TEST(Adapters, AnswersAreTheSameAloneAndTogether) {
  const TestAdapters adapters;
  const std::vector<Request> requests = adapter_requests(10);
  const std::vector<Answer> alone = answers_alone(requests, adapters.options);
  EngineOptions usual = llama_options(adapters.options), scarce = usual, small = usual, drafted = usual, early = usual;
  scarce.max_model_len = 128;
  scarce.kv_cache_bytes = testing::cache_of(scarce, 1);
  small.max_num_seqs = small.max_num_batched_tokens = 4;
  drafted.speculative = Speculation::kNgram;
  drafted.speculate_always = true;
  early.speculative = Speculation::kEarlyExit;
  early.speculate_always = true;
  for (const auto& [what, options] :
       {std::pair{"usual", usual}, {"scarce", scarce}, {"small", small}, {"ngram", drafted}, {"early exit", early}}) {
    Engine engine(options);
    const auto together = answers_together(engine, requests);
    for (size_t i = 0; i < requests.size(); ++i)
      expect_same(alone[i], together[i][0], std::string(what) + " " + std::to_string(i));
    if (options.kv_cache_bytes > 0) {
      EXPECT_GT(engine.stats().preemptions, 0u);
    }
  }
  // Adapters change answers.
  Engine engine(usual);
  EXPECT_NE(answer(engine, adapted(random_tokens(1, 20), "all")).tokens,
            answer(engine, adapted(random_tokens(1, 20), "")).tokens);
}

TEST(Adapters, EveryKernelSetGivesTheBitsOfTheReference) {
  const TestAdapters adapters;
  const std::vector<Request> requests = adapter_requests(5);
  std::vector<Answer> first;
  for (const char* activations : {"f32", "bf16", "int8"}) {
    first.clear();
    for (const char* kernels : {"reference", "auto"}) {
      EngineOptions o = llama_options(adapters.options);
      o.kernels = kernels;
      o.activations = activations;
      Engine engine(o);
      const auto together = answers_together(engine, requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        if (first.size() < requests.size()) {
          first.push_back(together[i][0]);
        } else {
          expect_same(first[i], together[i][0], std::string(activations) + " " + std::to_string(i));
        }
      }
    }
  }
}

TEST(Adapters, PrefixesBelongToTheirAdapter) {
  const TestAdapters adapters;
  Engine engine(llama_options(adapters.options));
  const TokenIds prompt = random_tokens(5, 60);
  EXPECT_EQ(answer(engine, adapted(prompt, "")).last.usage.cached_tokens, 0);
  const Answer cold = answer(engine, adapted(prompt, "all"));
  EXPECT_EQ(cold.last.usage.cached_tokens, 0);
  EXPECT_EQ(answer(engine, adapted(prompt, "other")).last.usage.cached_tokens, 0);
  const Answer warm = answer(engine, adapted(prompt, "all"));
  EXPECT_EQ(warm.last.usage.cached_tokens, 59);
  expect_same(cold, warm);
}

// Those of one adapter under two names are the same numbers, so that they share pages.
TEST(Adapters, PrefixesAreThoseOfTheNumbersNotOfTheName) {
  const TestAdapters adapters;
  Engine engine(llama_options({adapters.options[0], {"again", adapters.options[0].path}}));
  const TokenIds prompt = random_tokens(5, 60);
  answer(engine, adapted(prompt, "all"));
  EXPECT_EQ(answer(engine, adapted(prompt, "again")).last.usage.cached_tokens, 59);
}

void expect_error(const std::function<void()>& act, std::string_view words) {
  try {
    act();
    ADD_FAILURE() << "no error: " << words;
  } catch (const Error& e) {
    EXPECT_NE(std::string_view(e.what()).find(words), std::string_view::npos) << e.what();
  }
}

bool in_another_process() { return std::getenv("QUIRE_EXECUTOR_PROCESS") != nullptr; }

TEST(Adapters, ComeAndGoWhileOthersAnswer) {
  if (in_another_process()) GTEST_SKIP() << "adapters are loaded at the start only";
  const TestAdapters adapters;
  EngineOptions o = llama_options({adapters.options[0]});
  o.adapter_bytes = size_t{1} << 20;
  o.max_adapter_rank = 4;
  Engine engine(o);
  const Request some = adapted(random_tokens(3, 30), "some", 200), all = adapted(random_tokens(4, 20), "all", 200);
  const std::vector<Answer> alone = answers_alone({some, all}, adapters.options);
  expect_error([&] { engine.submit(some, [](const Output&) {}); },
               "there is no adapter \"some\"; the model has \"all\"");
  engine.add_adapter(adapters.options[1]);
  expect_error([&] { engine.add_adapter(adapters.options[1]); }, "there is an adapter \"some\" already");
  ASSERT_EQ(engine.adapters().size(), 2u);
  EXPECT_EQ(engine.adapters()[1].rank, 4);
  for (int round = 0; round < 3; ++round) {
    const auto together = answers_together(engine, {some, all}, [&](size_t i, RequestId) {
      if (i == 1) return;
      engine.remove_adapter("some");  // the request goes on with it
      engine.add_adapter({"third", adapters.options[2].path});
    });
    expect_same(alone[0], together[0][0]);
    expect_same(alone[1], together[1][0]);
    engine.remove_adapter("third");
    engine.add_adapter(adapters.options[1]);
  }
  expect_error([&] { engine.remove_adapter("third"); }, "there is no adapter \"third\"");
}

TEST(Adapters, KeepToTheirMemory) {
  const TestAdapters adapters;
  if (!in_another_process()) {
    Engine none(llama_options({adapters.options[0]}));
    expect_error([&] { none.add_adapter(adapters.options[1]); }, "(--lora-memory, --max-loras)");
    EngineOptions o = llama_options({});
    o.adapter_bytes = size_t{1} << 20;
    o.max_adapter_rank = 2;
    Engine low(o);
    expect_error([&] { low.add_adapter(adapters.options[1]); }, "has rank 4, but there is only room for rank 2");
  }
  EngineOptions o = llama_options(adapters.options);
  o.record = "/tmp/never-written";
  expect_error([&] { Engine engine(o); }, "--record cannot be combined with --lora");
  expect_error([&] { Engine engine(llama_options({adapters.options[0], adapters.options[0]})); }, "already");
}

// A place is free for the next adapter as soon as the last answer of the one before has ended, also if no step follows.
TEST(Adapters, HaveAsManyPlacesAsAskedFor) {
  if (in_another_process()) GTEST_SKIP() << "adapters are loaded at the start only";
  const TestAdapters adapters;
  EngineOptions o = llama_options({});
  o.max_adapters = 1;
  o.max_adapter_rank = 4;
  Engine engine(o);
  const Request r = adapted(random_tokens(3, 30), "some"), other = adapted(random_tokens(3, 30), "other");
  const std::vector<Answer> alone = answers_alone({r, other}, adapters.options);
  for (int round = 0; round < 3; ++round) {
    engine.add_adapter(adapters.options[1]);
    expect_error([&] { engine.add_adapter(adapters.options[2]); }, "KiB of memory, but only");
    expect_same(alone[0], answer(engine, r));
    engine.remove_adapter("some");
    engine.add_adapter(adapters.options[2]);
    expect_same(alone[1], answer(engine, other));
    engine.remove_adapter("other");
  }
  o.max_adapter_rank = 3;
  Engine low(o);
  expect_error([&] { low.add_adapter(adapters.options[1]); }, "has rank 4, but there is only room for rank 3");
}

TEST(Adapters, WithMagnitudesAnswerTheSameAloneAndTogether) {
  EditedAdapter decomposed("llama_dora"), plain("llama");
  plain.draw(1);
  const std::vector<AdapterOption> options = {{"dora", decomposed.write()}, {"plain", plain.write()}};
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i) {
    const char* const names[] = {"dora", "plain", ""};
    requests.push_back(adapted(random_tokens(static_cast<unsigned>(i), 3 + 7 * i), names[i % 3]));
  }
  const std::vector<Answer> alone = answers_alone(requests, options);
  for (const char* kernels : {"auto", "reference"}) {
    EngineOptions o = llama_options(options);
    o.kernels = kernels;
    Engine engine(o);
    const auto together = answers_together(engine, requests);
    for (size_t i = 0; i < requests.size(); ++i) expect_same(alone[i], together[i][0], kernels);
  }
}

TEST(Adapters, WithDamagedNumbersAreRefused) {
  EditedAdapter damaged("llama");
  damaged.draw(1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::string& bytes = damaged.tensors.begin()->second.bytes;
  bytes.replace(8, sizeof nan, reinterpret_cast<const char*>(&nan), sizeof nan);
  const std::string path = damaged.write();
  expect_error([&] { Engine engine(llama_options({{"damaged", path}})); }, "nan");
}

}  // namespace
}  // namespace quire
