// Random schedules: whatever other sequences, chunks, threads and pages a sequence gets, its logits have the bits that
// they have alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>

#include "engine/loaded_model.h"
#include "unit/engine/tiny_model.h"
#include "unit/kernels/random_blocks.h"

namespace quire {
namespace {

constexpr int kSchedules = 200;  // of each weight type
constexpr int kMaxRows = 512;
constexpr int kPages = 160;

// Everything that logits may depend on besides the tokens.
struct Numerics {
  const KernelSet* kernels;
  Activations activations;
  KvType kv;

  auto operator<=>(const Numerics&) const = default;
};

using Random = std::mt19937;
int between(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

// Schedules use prefixes of these prompts. The last is longer than an attention split, and rare because it is slow.
constexpr int kPromptTokens[] = {7, 33, 75, 600};
static_assert(kPromptTokens[3] > kAttentionSplit);

class TinyModel {
 public:
  explicit TinyModel(TensorType type) : loaded_(options(type)) {
    Random random(7);
    for (const int length : kPromptTokens) {
      TokenIds& ids = prompts_.emplace_back(static_cast<size_t>(length));
      for (TokenId& id : ids) id = static_cast<TokenId>(random() % 256);
    }
    for (int threads = 1; threads <= 4; ++threads) teams_.push_back(std::make_unique<Team>(threads));
    for (const KvType kv : {KvType::kF32, KvType::kBf16, KvType::kF16}) {
      caches_.emplace(kv, CacheMemory(cache_layout(loaded_.config, kv), kPages));
    }
  }

  const TokenIds& prompt(int index) const { return prompts_[static_cast<size_t>(index)]; }
  size_t vocab() const { return static_cast<size_t>(loaded_.config.vocab); }

  // Its cache still holds the pages of earlier schedules.
  Decoder decoder(const Numerics& n, int threads) {
    return {loaded_.config,
            loaded_.weights,
            caches_.at(n.kv),
            {*n.kernels, *teams_[static_cast<size_t>(threads - 1)], n.activations},
            {kMaxRows, kMaxRows, loaded_.config.max_positions}};
  }

  // Logits of every position of a prompt, computed alone: by one thread, in order, in pages 0, 1, ...
  std::span<const float> alone(const Numerics& n, int index) {
    std::vector<float>& logits = alone_[{n, index}];
    if (logits.empty()) {
      Decoder d = decoder(n, 1);
      std::vector<int32_t> pages(kPages);
      std::iota(pages.begin(), pages.end(), 0);
      const TokenIds& ids = prompt(index);
      for (int at = 0; at < static_cast<int>(ids.size()); at += kMaxRows) {
        std::vector<Row> rows;
        for (int i = at; i < std::min(at + kMaxRows, static_cast<int>(ids.size())); ++i)
          rows.push_back({ids[static_cast<size_t>(i)], i, true});
        const Span span{0, static_cast<int>(rows.size()), at, {&pages, 1}};
        const auto part = d.forward({rows, {&span, 1}});
        logits.insert(logits.end(), part.begin(), part.end());
      }
    }
    return logits;
  }

 private:
  static EngineOptions options(TensorType type) {
    EngineOptions o;
    o.model = testing::tiny_model(type, 1024);
    o.threads = 1;
    o.max_num_seqs = 1;
    return o;
  }

  LoadedModel loaded_;
  std::vector<TokenIds> prompts_;
  std::vector<std::unique_ptr<Team>> teams_;
  std::map<KvType, CacheMemory> caches_;
  std::map<std::pair<Numerics, int>, std::vector<float>> alone_;
};

struct Scheduled {
  int prompt, tokens, done = 0;
  std::vector<int32_t> pages;
};

std::vector<Scheduled> random_sequences(Random& random) {
  std::vector<int32_t> pages(kPages);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random);
  std::vector<Scheduled> sequences;
  size_t used = 0;
  for (int i = between(random, 1, 6); i > 0; --i) {
    Scheduled s{.prompt = random() % 200 == 0 ? 3 : between(random, 0, 2), .tokens = 0, .pages = {}};
    const int length = kPromptTokens[s.prompt];
    s.tokens = length > kAttentionSplit ? length : between(random, 1, length);
    const size_t needed = static_cast<size_t>(s.tokens + kPageTokens - 1) / kPageTokens;
    if (used + needed > pages.size()) break;
    s.pages.assign(pages.begin() + static_cast<ptrdiff_t>(used), pages.begin() + static_cast<ptrdiff_t>(used + needed));
    used += needed;
    sequences.push_back(s);
  }
  return sequences;
}

// Runs one schedule. Returns the number of rows whose logits differ, and of rows compared.
struct Outcome {
  int differing = 0, compared = 0;
};
Outcome run_schedule(TinyModel& model, const Numerics& numerics, int threads, Random& random) {
  std::vector<Scheduled> sequences = random_sequences(random);
  std::vector<std::span<const float>> expected;
  for (const Scheduled& s : sequences) expected.push_back(model.alone(numerics, s.prompt));
  Decoder decoder = model.decoder(numerics, threads);
  const int largest_chunk = std::array{1, 3, 17, 64, kMaxRows}[random() % 5];
  Outcome outcome;
  for (;;) {
    std::vector<Row> rows;
    std::vector<Span> spans;
    std::vector<std::pair<size_t, int>> wanted;  // sequence, position
    bool waiting = false;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Scheduled& s = sequences[i];
      const int count = std::min({s.tokens - s.done, between(random, random() % 4 == 0 ? 0 : 1, largest_chunk),
                                  kMaxRows - static_cast<int>(rows.size())});
      waiting |= s.done < s.tokens;
      if (count <= 0) continue;  // it sits this step out
      spans.push_back({static_cast<int>(rows.size()), count, s.done, {&s.pages, 1}});
      for (int n = 0; n < count; ++n, ++s.done) {
        const bool wants = n + 1 == count || random() % 4 == 0;
        if (wants) wanted.emplace_back(i, s.done);
        rows.push_back({model.prompt(s.prompt)[static_cast<size_t>(s.done)], s.done, wants});
      }
    }
    if (!waiting) return outcome;
    if (rows.empty()) continue;
    const auto logits = decoder.forward({rows, spans});
    EXPECT_EQ(logits.size(), wanted.size() * model.vocab());
    for (size_t w = 0; w < wanted.size(); ++w) {
      const auto [sequence, position] = wanted[w];
      const auto solo = expected[sequence].subspan(static_cast<size_t>(position) * model.vocab(), model.vocab());
      outcome.differing += std::memcmp(solo.data(), logits.data() + w * model.vocab(), solo.size_bytes()) != 0;
      ++outcome.compared;
    }
  }
}

class RandomSchedules : public ::testing::TestWithParam<TensorType> {};

TEST_P(RandomSchedules, ChangeNoBitOfALogit) {
  std::vector<const KernelSet*> sets(available_kernels().begin(), available_kernels().end());
  if (sets.size() > 1) sets.erase(sets.begin());  // the reference takes minutes; exactness_test.cc has it
  TinyModel model(GetParam());
  for (unsigned seed = 0; seed < kSchedules; ++seed) {
    Random random(seed);
    const Numerics numerics{sets[random() % sets.size()],
                            std::array{Activations::kF32, Activations::kBf16, Activations::kInt8}[random() % 3],
                            std::array{KvType::kF32, KvType::kBf16, KvType::kF16}[random() % 3]};
    const int threads = between(random, 1, 4);
    const Outcome outcome = run_schedule(model, numerics, threads, random);
    ASSERT_GT(outcome.compared, 0);
    ASSERT_EQ(outcome.differing, 0) << "of " << outcome.compared << " rows; seed " << seed << ", "
                                    << numerics.kernels->name << " kernels, activations "
                                    << static_cast<int>(numerics.activations) << ", cache type "
                                    << static_cast<int>(numerics.kv) << ", " << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(WeightTypes, RandomSchedules, ::testing::ValuesIn(testing::kLoadable),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace quire
