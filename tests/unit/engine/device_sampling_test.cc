// Sampling from what is picked of logits on a device gives the tokens of sampling from all of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "cuda/cuda_backend.h"
#include "engine/step/logits_download.h"
#include "engine/step/picked_row.h"
#include "fenced/fenced_backend.h"
#include "unit/engine/fenced_engine.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answers;
using testing::expect_same;
using testing::random_tokens;
using testing::tiny_options;

constexpr float kInfinite = std::numeric_limits<float>::infinity(), kNoNumber = std::numeric_limits<float>::quiet_NaN();

// A row of logits, and a request that samples from it.
struct RandomRow {
  std::mt19937 random;
  size_t vocab;
  SamplingParams params;
  std::vector<float> logits;
  TokenIds prompt, generated, banned;
  std::vector<TokenIds> banned_runs;
  std::vector<uint32_t> mask, penalized_tokens;
  SampleRow row;

  RandomRow(unsigned seed, size_t size) : random(seed), vocab(size), logits(size) {
    std::normal_distribution<float> normal(0, some({0.5f, 2, 6}));
    for (float& x : logits) x = normal(random);
    if (one_in(3)) std::ranges::for_each(logits, [](float& x) { x = std::round(x); });  // ties
    if (one_in(10)) std::ranges::fill(logits, some({0, -0.0f, 1, -kInfinite}));
    if (one_in(4)) std::ranges::for_each(logits, [&](float& x) { x = one_in(2) ? -kInfinite : x; });
    if (one_in(12)) logits[static_cast<size_t>(token())] = some({kNoNumber, kInfinite});

    params.seed = random();
    params.temperature = some({0, 0, 0.3f, 0.8f, 1, 3});
    if (one_in(2)) params.top_k = 1 + static_cast<int>(random() % 150);
    params.top_p = some({1, 1, 0.9f, 0.5f, 0});
    params.min_p = some({0, 0, 0, 0.02f, 0.5f});
    if (one_in(12)) params.typical_p = 0.7f;
    if (one_in(12)) params.top_n_sigma = 1.5f;
    if (one_in(6)) params.xtc_probability = 0.8f, params.xtc_threshold = 0.05f;
    if (one_in(6)) params.dynatemp_range = 0.5f;
    if (one_in(16)) params.mirostat = 2;
    if (one_in(16)) params.logprobs = 3;
    prompt = tokens(12);
    generated = tokens(10);
    row = {.logits = logits, .prompt = prompt, .generated = generated, .position = random() % 1000};
    row.vocab = vocab;
    if (one_in(2)) adjust();
    if (!one_in(4)) return;
    mask = bits();
    if (one_in(4)) std::ranges::fill(mask, 0u);
    if (one_in(4)) mask[static_cast<size_t>(token()) / 32] |= 4;
    penalized_tokens = bits();
    row.mask = mask;
    row.penalized = !one_in(3);
    row.penalized_tokens = penalized_tokens;
  }

  RandomRow(const RandomRow&) = delete;

  bool one_in(unsigned n) { return random() % n == 0; }
  float some(const std::vector<float>& values) { return values[random() % values.size()]; }
  TokenId token() { return static_cast<TokenId>(random() % vocab); }
  TokenIds tokens(size_t most) {
    TokenIds ids(random() % (most + 1));
    for (TokenId& id : ids) id = token();
    return ids;
  }
  std::vector<uint32_t> bits() {
    std::vector<uint32_t> words((vocab + 31) / 32);
    for (uint32_t& word : words) word = static_cast<uint32_t>(random() & random());
    return words;
  }

  // By parameters that change the logits of some tokens.
  void adjust() {
    if (one_in(4)) params.repetition_penalty = some({0.7f, 1.4f});
    if (one_in(4)) params.frequency_penalty = some({-0.4f, 0.6f});
    if (one_in(4)) params.presence_penalty = 0.5f;
    if (one_in(4)) params.dry_multiplier = 1, params.dry_allowed_length = 1;
    if (one_in(4)) params.repeat_last_n = static_cast<int>(random() % 8);
    for (const TokenId id : tokens(one_in(4) ? 5 : 0))
      params.logit_bias.emplace_back(id, some({-kInfinite, -3, 4, 20}));
    if (one_in(8)) params.allowed_token_ids = tokens(6);
    if (!generated.empty() && one_in(4)) prompt.insert(prompt.end(), generated.begin(), generated.end());  // repeats
    if (one_in(4)) banned = tokens(3);
    if (one_in(4) && !generated.empty()) banned_runs = {{generated.back(), token()}, {token(), token()}, {token()}};
    row.prompt = prompt;
    row.banned = banned;
    row.banned_runs = banned_runs;
  }

  // The token, or what is wrong.
  std::string said(const SampleRow& of, SamplerScratch& scratch) const {
    try {
      const Sampled sampled = sample(params, of, scratch);
      std::string text = std::to_string(sampled.token);
      if (params.logprobs) text += " " + std::to_string(sampled.logprob);
      return text;
    } catch (const Error& error) {
      return error.what();
    }
  }
};

void download_logits(LogitsDownload& download, Operations& ops, const Rows& x, size_t rows,
                     const std::vector<std::optional<Pick>>& picks, ForwardOutput& output) {
  download.begin(ops, x, picks);
  ops.finish();
  download.end(x, rows, picks, false, output);
}

struct Counts {
  int rows = 0, picked = 0;  // that were not brought whole
  int drawn = 0;             // of these, on the device
  int not_enough = 0;        // rows with nothing wrong that were brought whole although they were picked from
};

// Picks from `batches` of rows on the backend, and samples from them and from the whole rows.
Counts compare(Backend& backend, int batches, unsigned seed) {
  constexpr size_t kRows = 6;
  const auto ops = backend.operations(Activations::kF32, {.max_rows = static_cast<int>(kRows),
                                                          .max_positions = 1,
                                                          .max_picked = static_cast<int>(kRows),
                                                          .inputs = {{static_cast<int>(kRows), 32}}});
  LogitsDownload download(backend);
  ForwardOutput output;
  SamplerScratch scratch;
  PickedRow picked_row;
  Counts counts;
  for (int batch = 0; batch < batches; ++batch) {
    std::mt19937 random(seed + static_cast<unsigned>(batch));
    const size_t vocab = batch % 16 == 15 ? 8193 + random() % 2000 : 1 + random() % (batch % 2 == 0 ? 20 : 500);
    std::vector<std::unique_ptr<RandomRow>> rows;
    for (size_t i = 0; i < kRows; ++i) rows.push_back(std::make_unique<RandomRow>(random(), vocab));
    const int most = batch % 3 == 0 ? 8 : Pick::kMostBest;

    const BackendMemory memory(backend, kRows * vocab * sizeof(float));
    backend.write(memory.data(), memory.size(), [&](std::span<std::byte> to) {
      for (size_t i = 0; i < kRows; ++i)
        std::memcpy(&to[i * vocab * sizeof(float)], rows[i]->logits.data(), vocab * sizeof(float));
    });
    std::vector<std::optional<Pick>> picks(kRows);
    std::vector<Candidates> candidates(kRows);
    std::vector<std::vector<uint32_t>> masks(kRows, std::vector<uint32_t>((vocab + 31) / 32));
    for (size_t i = 0; i < kRows; ++i) {
      const RandomRow& row = *rows[i];
      if (!find_candidates(row.params, row.row, most, batch % 5 > 0, scratch, candidates[i])) continue;
      picks[i] = pick_for(row.params, row.row, candidates[i], masks[i]);
    }
    download_logits(download, *ops, {reinterpret_cast<float*>(memory.data()), static_cast<int>(vocab), vocab}, kRows,
                    picks, output);

    for (size_t i = 0; i < kRows; ++i) {
      SampleRow of_host = rows[i]->row, of_device = rows[i]->row;
      std::vector<float> whole = rows[i]->logits;
      of_host.logits = whole;
      if (output.picked[i]) {
        picked_row.set(*output.picked[i], of_device);
        ++counts.picked;
        counts.drawn += of_device.drawn != kNoToken;
      } else {
        const bool sound =
            rows[i]->row.mask.empty() && std::ranges::all_of(rows[i]->logits, [](float x) { return std::isfinite(x); });
        counts.not_enough += sound && picks[i];
        of_device.logits = output.logits.subspan(i * vocab, vocab);
      }
      EXPECT_EQ(rows[i]->said(of_host, scratch), rows[i]->said(of_device, scratch))
          << "seed " << seed + static_cast<unsigned>(batch) << ", row " << i << " of " << vocab << " logits";
    }
  }
  counts.rows = batches * static_cast<int>(kRows);
  return counts;
}

void expect_of_all_kinds(const Counts& counts) {
  EXPECT_GT(counts.picked, counts.rows / 3);
  EXPECT_GT(counts.drawn, counts.rows / 10);
  EXPECT_GT(counts.not_enough, 0);
}

TEST(DeviceSampling, PickedLogitsGiveTheTokensOfAll) {
  Team team{1};
  CpuBackend cpu{"auto", team};
  testing::FencedBackend backend{cpu};
  expect_of_all_kinds(compare(backend, 2000, 100));
}

TEST(DeviceSampling, PickedLogitsGiveTheTokensOfAllOnTheEmulatedGpu) {
  cuda::CudaBackend backend(cuda::open(1));
  expect_of_all_kinds(compare(backend, 64, 5000));
}

// Steps bring what they need: a whole row where log-probabilities are wanted, two words where the best token is.
TEST(DeviceSampling, BringsOnlyTheRowsThatAreNeededWhole) {
  Team team{1};
  CpuBackend cpu{"auto", team};
  testing::FencedBackend backend{cpu};
  const auto ops = backend.operations(Activations::kF32, {.max_rows = 4, .max_picked = 4, .inputs = {{4, 32}}});
  constexpr size_t kVocab = 100;
  const BackendMemory memory(backend, 4 * kVocab * sizeof(float));
  const auto write = [&](size_t i, float x) {
    backend.write(memory.data() + i * sizeof(float), sizeof x,
                  [&](std::span<std::byte> to) { std::memcpy(to.data(), &x, sizeof x); });
  };
  for (size_t i = 0; i < 4 * kVocab; ++i) write(i, static_cast<float>(i));
  write(3 * kVocab + 7, kNoNumber);
  LogitsDownload download(backend);
  ForwardOutput output;
  const Rows x{reinterpret_cast<float*>(memory.data()), kVocab, kVocab};
  download_logits(download, *ops, x, 4, std::vector<std::optional<Pick>>{Pick{.best = 1}, {}, Pick{}, Pick{.best = 1}},
                  output);
  ASSERT_TRUE(output.picked[0] && !output.picked[1] && output.picked[2] && !output.picked[3]);  // one has NaN
  EXPECT_EQ(output.picked[0]->best[0], 99);
  EXPECT_EQ(output.logits[kVocab + 1], 101.0f);
  EXPECT_EQ(output.logits_bytes, (2 * kVocab + 4) * sizeof(float));
  // A row of equal weights: half of them end before the middle column, and ten columns are less than half.
  for (size_t i = 0; i < kVocab; ++i) write(kVocab + i, 5);
  const Pick any{.best = 1, .draw = {{.temperature = 1, .uniform = 0.5}}},
      cut{.best = 10, .draw = {{.temperature = 1, .uniform = 0.5, .top_p = 0.5f}}};
  download_logits(download, *ops, x, 4, std::vector<std::optional<Pick>>{cut, any, any, Pick{}}, output);
  ASSERT_TRUE(output.picked[0] && output.picked[1] && output.picked[2]);
  EXPECT_EQ(output.picked[1]->drawn, 50);
  EXPECT_EQ(output.logits_bytes, 3 * 3 * sizeof(float));
  download_logits(download, *ops, x, 4, std::vector<std::optional<Pick>>{cut, cut, any, Pick{}}, output);
  EXPECT_TRUE(output.picked[0] && !output.picked[1]);
  download_logits(download, *ops, x, 4, {}, output);
  EXPECT_EQ(output.logits_bytes, 4 * kVocab * sizeof(float));
  EXPECT_EQ(output.logits[99], 99.0f);
}

std::vector<Request> requests_of_all_kinds(Engine& engine, int count) {
  using Kind = ConstraintSource::Kind;
  std::vector<Request> all;
  std::mt19937 random(9);
  for (int i = 0; i < count; ++i) {
    Request& r = all.emplace_back();
    r.prompt = random_tokens(static_cast<unsigned>(i), 3 + static_cast<int>(random() % 9));
    SamplingParams& s = r.sampling;
    s.seed = static_cast<uint64_t>(i);
    s.max_tokens = 8;
    if (i % 8 == 6) {  // with the defaults of OpenAI's API
      s.n = i % 16 == 6 ? 3 : 1;
      continue;
    }
    s.temperature = i % 3 == 0 ? 0.0f : 1.2f;
    if (i % 3 == 1) s.top_k = 1 + static_cast<int>(random() % 40);
    if (i % 4 == 1) s.top_p = 0.9f;
    if (i % 5 == 1) s.repetition_penalty = 1.5f;
    if (i % 5 == 2) s.frequency_penalty = 0.8f;
    if (i % 5 == 3) s.dry_multiplier = 1;
    if (i % 6 == 2) s.logit_bias = {{'a', 3.0f}, {'b', -kInfinite}};
    if (i % 7 == 3) s.allowed_token_ids = {'x', 'y', 'z'};
    if (i % 7 == 4) s.min_tokens = 4;
    if (i % 8 == 5) s.bad_words = {"a", "bc"};
    if (i % 9 == 4) s.logprobs = 2;
    if (i % 9 == 5) s.prompt_logprobs = 1;
    if (i % 10 == 6) s.n = 3;
    if (i % 4 == 3) r.constraint = engine.compile({.kind = Kind::kRegex, .text = "[a-m]{2,9}(red|green)[0-9]{3,9}"});
  }
  return all;
}

void expect_same_without(EngineOptions o, int count) {
  const testing::FencedEngines fenced;
  std::vector<std::vector<Answers>> all;
  uint64_t bytes[2];
  for (const bool on : {false, true}) {
    o.device_sampling = on;
    Engine engine(o);
    all.push_back(testing::answers_together(engine, requests_of_all_kinds(engine, count)));
    bytes[on] = engine.stats().logits_bytes;
  }
  for (size_t i = 0; i < all[0].size(); ++i) {
    for (size_t choice = 0; choice < all[0][i].size(); ++choice) {
      expect_same(all[0][i][choice], all[1][i][choice], "request " + std::to_string(i));
      EXPECT_EQ(all[0][i][choice].prompt.size(), all[1][i][choice].prompt.size());
    }
  }
  EXPECT_GT(bytes[1], 0u);
  EXPECT_LT(bytes[1], bytes[0]);
}

TEST(DeviceSampling, ChangesNoAnswer) { expect_same_without(tiny_options(), 40); }

TEST(DeviceSampling, ChangesNoAnswerWithDrafts) {
  for (const DraftAcceptance acceptance : {DraftAcceptance::kExact, DraftAcceptance::kRejection}) {
    for (const Speculation drafter : {Speculation::kNgram, Speculation::kLookahead, Speculation::kEarlyExit}) {
      EngineOptions o = tiny_options();
      o.speculative = drafter;
      o.early_exit_layers = drafter == Speculation::kEarlyExit ? 1 : 0;
      o.speculative_acceptance = acceptance;
      o.speculate_always = true;
      o.num_speculative_tokens = 3;
      expect_same_without(o, 24);
    }
  }
}

}  // namespace
}  // namespace quire
