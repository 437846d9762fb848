// Encoders, embedding models and classifiers compared with transformers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "base/files/mapped_file.h"
#include "engine/single_sequence.h"
#include "golden/engine/expected_tensors.h"
#include "kernels/kernels.h"
#include "paths.h"
#include "quire/engine.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> entries(const char* folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(golden_dir() / folder)) {
    if (entry.is_directory() || entry.path().extension() == ".gguf") found.push_back(entry.path().string());
  }
  std::ranges::sort(found);
  return found;
}

EngineOptions options(const std::string& path, std::string_view kernels, const char* activations) {
  EngineOptions o;
  o.model = path;
  o.kernels = kernels;
  o.activations = activations;
  o.threads = 2;
  o.max_num_seqs = 4;
  o.max_num_batched_tokens = 128;
  return o;
}

struct Case {
  TokenIds prompt;
  size_t second_text = SIZE_MAX;
  std::vector<float> result;
};

std::vector<Case> cases_of(const fs::path& folder) {
  const auto file = Safetensors::open(folder / "expected.safetensors");
  std::vector<Case> cases;
  for (int k = 0; file.find_tensor("prompt_" + std::to_string(k)); ++k) {
    const std::string n = "_" + std::to_string(k);
    const auto prompt = values<int64_t>(file, "prompt" + n), types = values<int64_t>(file, "type" + n);
    Case c{.prompt = {prompt.begin(), prompt.end()}, .result = values<float>(file, "embedding" + n)};
    const auto second = std::ranges::find(types, 1);
    if (second != types.end()) c.second_text = static_cast<size_t>(second - types.begin());
    if (c.result.empty()) c.result = values<float>(file, "score" + n);
    cases.push_back(std::move(c));
  }
  return cases;
}

Request request_of(const Engine& engine, const Case& c) {
  Request r;
  r.prompt = c.prompt;
  r.pooling = engine.info().pooling;
  r.second_text = c.second_text;
  return r;
}

std::vector<float> pooled(Engine& engine, const Case& c) {
  std::vector<float> result;
  engine.generate(request_of(engine, c), [&](const Output& out) { result = out.embedding; });
  return result;
}

void expect_results(const std::string& path, std::string_view kernels, std::span<const Case> cases, double tolerance) {
  Engine engine(options(path, kernels, "f32"));
  ASSERT_NE(engine.info().pooling, Pooling::kNone);
  for (const Case& c : cases) {
    EXPECT_LE(largest_difference(c.result, pooled(engine, c)), tolerance) << c.prompt.size() << " tokens";
  }
}

double encoder_tolerance(const fs::path& folder) {
  const auto tolerance = nlohmann::json::parse(read_text_file(folder / "expected.json")).at("tolerance");
  return tolerance.contains("embedding") ? tolerance.at("embedding") : tolerance.at("score");
}

class Encoders : public ::testing::TestWithParam<std::string> {};

TEST_P(Encoders, HaveTheEmbeddingsAndScoresOfTransformers) {
  for (const KernelSet* set : available_kernels()) {
    SCOPED_TRACE(std::string(set->name));
    expect_results(GetParam(), set->name, cases_of(GetParam()), encoder_tolerance(GetParam()));
  }
}

// Neither other prompts in a step nor kernels, threads or limits change a bit.
TEST_P(Encoders, GiveTheSameBitsInAnyBatch) {
  const std::vector<Case> cases = cases_of(GetParam());
  for (const char* activations : {"int8", "int8x2", "bf16", "f32"}) {
    std::vector<std::vector<float>> alone;
    {
      Engine engine(options(GetParam(), "reference", activations));
      for (const Case& c : cases) alone.push_back(pooled(engine, c));
    }
    for (const KernelSet* set : available_kernels()) {
      SCOPED_TRACE(std::string(set->name) + " " + activations);
      EngineOptions small = options(GetParam(), set->name, activations);
      small.threads = 1;
      small.max_num_batched_tokens = 4;  // less than the longest prompt, which still runs in one step
      for (const EngineOptions& o : {options(GetParam(), set->name, activations), small}) {
        Engine engine(o);
        std::vector<std::promise<std::vector<float>>> results(2 * cases.size());
        for (size_t i = 0; i < results.size(); ++i) {
          engine.submit(request_of(engine, cases[i % cases.size()]),
                        [&result = results[i]](const Output& out) { result.set_value(out.embedding); });
        }
        for (size_t i = 0; i < results.size(); ++i) {
          EXPECT_EQ(results[i].get_future().get(), alone[i % cases.size()]) << "prompt " << i % cases.size();
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Encoders, ::testing::ValuesIn(entries("encoders")),
                         [](const auto& info) { return fs::path(info.param).filename().string(); });

// A Qwen3 that its model card calls a reranker scores by its logits for yes and no.
TEST(YesNoReranker, HasTheProbabilityThatTheDecoderGivesToYes) {
  const fs::path decoder = golden_dir() / "encoders/qwen3_embedding",
                 reranker = fs::temp_directory_path() / "quire-yes-no-reranker";
  fs::remove_all(reranker);
  fs::create_directory(reranker);
  for (const char* file : {"config.json", "model.safetensors"}) fs::copy(decoder / file, reranker / file);
  nlohmann::json vocabulary = {{"yes", 200}, {"no", 100}};
  for (int id = 0; id < 95; ++id) vocabulary[std::string(1, static_cast<char>('!' + id))] = id;
  std::ofstream(reranker / "tokenizer.json")
      << nlohmann::json{{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}},
                        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                        {"decoder", {{"type", "ByteLevel"}}}};
  std::ofstream(reranker / "README.md") << "# Qwen3-Reranker-0.6B\n";

  LoadedModel plain(options(decoder.string(), "auto", "f32"));
  SingleSequence sequence(plain);
  Engine engine(options(reranker.string(), "auto", "f32"));
  EXPECT_FALSE(engine.info().generates);
  EXPECT_EQ(engine.info().labels, 2);
  for (const Case& c : cases_of(decoder)) {
    sequence.clear();
    const auto logits = sequence.append(c.prompt, false);
    const std::vector<float> scores = pooled(engine, c);
    ASSERT_EQ(scores.size(), 2u);
    EXPECT_NEAR(scores[0], logits[200], 1e-4);
    EXPECT_NEAR(scores[1], logits[100], 1e-4);
  }
  const TokenPair pair = engine.encode_pair("query", "document", 0);
  EXPECT_NE(engine.decode(pair.ids).find("<Query>:query<Document>:document"), std::string::npos);
  fs::remove_all(reranker);
}

class EncoderGgufs : public ::testing::TestWithParam<std::string> {};

TEST_P(EncoderGgufs, HaveTheEmbeddingsAndScoresOfTheirDirectories) {
  const fs::path path = GetParam();
  const std::string name = path.stem().string();
  const auto index = nlohmann::json::parse(read_text_file(path.parent_path() / "index.json")).at(name);
  const fs::path folder = golden_dir() / index.at("expected").get<std::string>();
  std::vector<Case> cases = cases_of(folder);
  for (size_t k = 0; index.contains("score") && k < cases.size(); ++k)
    cases[k].result = index.at("score")[k].get<std::vector<float>>();
  expect_results(path.string(), available_kernels().back()->name, cases, encoder_tolerance(folder));
}

INSTANTIATE_TEST_SUITE_P(Golden, EncoderGgufs, ::testing::ValuesIn(entries("encoders-gguf")),
                         [](const auto& info) { return fs::path(info.param).stem().string(); });

}  // namespace
}  // namespace quire
