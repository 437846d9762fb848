// Random schedules: whatever other sequences, chunks, threads and pages a sequence gets, its logits have the bits that
// they have alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "engine/loaded_model.h"
#include "kernels/kernels.h"
#include "paths.h"
#include "property/engine/random.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/tiny_model.h"
#include "unit/model/transformed_model.h"

namespace quire {
namespace {

constexpr KvType kKvTypes[] = {KvType::kF32, KvType::kBf16, KvType::kF16, KvType::kInt8, KvType::kInt4, KvType::kFp8};
constexpr int kMaxRows = 512;
constexpr int kPages = 160;  // for each group of layers
constexpr int kMaxSequences = 6;
constexpr int kStates = 2 * kMaxSequences;  // one for each sequence, then one for its checkpoint

// What schedules are run on.
struct Subject {
  std::string name;
  std::function<std::string()> path;
  int schedules;
  bool default_numerics = false;  // only these, and caches of codes
  friend std::ostream& operator<<(std::ostream& out, const Subject& s) { return out << s.name; }
};

// Everything that logits may depend on besides the tokens.
struct Numerics {
  const KernelSet* kernels;
  Activations activations;
  KvType kv;

  auto operator<=>(const Numerics&) const = default;
};

// Schedules use prefixes of these prompts. The last is longer than an attention split, and rare because it is slow.
constexpr int kPromptTokens[] = {7, 33, 75, 600};
static_assert(kPromptTokens[3] > kAttentionSplit);

// The units of a cache, kPages for each group: in order, or shuffled.
std::vector<std::vector<int32_t>> shuffled_units(const CacheMemory& cache, Random* random) {
  std::vector<int32_t> units(static_cast<size_t>(cache.units()));
  std::iota(units.begin(), units.end(), 0);
  if (random) std::shuffle(units.begin(), units.end(), *random);
  std::vector<std::vector<int32_t>> tables;
  for (auto at = units.begin(); at != units.end(); at += kPages) tables.emplace_back(at, at + kPages);
  return tables;
}

class SmallModel {
 public:
  explicit SmallModel(const Subject& subject) : loaded_(options(subject)) {
    Random random(7);
    for (const int length : kPromptTokens) {
      TokenIds& ids = prompts_.emplace_back(static_cast<size_t>(length));
      for (TokenId& id : ids) id = static_cast<TokenId>(random() % 256);
    }
    for (int threads = 1; threads <= 4; ++threads) teams_.push_back(std::make_unique<Team>(threads));
    for (const KvType kv : kKvTypes) {
      if (subject.default_numerics && !multiplies_bf16(kv)) continue;
      CacheLayout layout = cache_layout(loaded_.target.config, kv);
      const auto groups = static_cast<int>(layout.groups().size());
      const int states = layout.state_bytes() > 0 ? kStates : 0;
      caches_.emplace(kv, CacheMemory(loaded_.runtime.cpu, {std::move(layout), kPages * groups, states}));
    }
  }

  // The longest prompt is too long for some.
  int prompts() const { return loaded_.target.config.max_positions < kPromptTokens[3] ? 3 : 4; }
  CacheMemory& cache(const Numerics& n) { return caches_.at(n.kv); }

  const TokenIds& prompt(int index) const { return prompts_[static_cast<size_t>(index)]; }
  size_t vocab() const { return static_cast<size_t>(loaded_.target.config.vocab); }

  // Its cache still holds the pages of earlier schedules.
  Decoder decoder(const Numerics& n, int threads) {
    return {loaded_.target.config, loaded_.target.weights,
            caches_.at(n.kv),      backends_.emplace_back(*n.kernels, *teams_[static_cast<size_t>(threads - 1)]),
            n.activations,         {kMaxRows, kMaxRows, loaded_.target.config.max_positions}};
  }

  // Logits of every position of a prompt, computed alone: by one thread, in order, in pages 0, 1, ...
  std::span<const float> alone(const Numerics& n, int index) {
    std::vector<float>& logits = alone_[{n, index}];
    if (logits.empty()) {
      Decoder d = decoder(n, 1);
      std::vector<std::vector<int32_t>> tables = shuffled_units(cache(n), nullptr);
      const bool has_state = cache(n).states() > 0;
      if (has_state) std::ranges::fill(cache(n).state(0), std::byte{0});
      const TokenIds& ids = prompt(index);
      for (int at = 0; at < static_cast<int>(ids.size()); at += kMaxRows) {
        std::vector<Row> rows;
        for (int i = at; i < std::min(at + kMaxRows, static_cast<int>(ids.size())); ++i)
          rows.push_back({ids[static_cast<size_t>(i)], i, true});
        const Span span{0, static_cast<int>(rows.size()), at, tables, has_state ? 0 : -1};
        const auto part = d.forward({rows, {&span, 1}});
        logits.insert(logits.end(), part.begin(), part.end());
      }
    }
    return logits;
  }

 private:
  static EngineOptions options(const Subject& subject) {
    EngineOptions o;
    o.model = subject.path();
    o.threads = 1;
    o.max_num_seqs = 1;
    return o;
  }

  LoadedModel loaded_;
  std::vector<TokenIds> prompts_;
  std::vector<std::unique_ptr<Team>> teams_;
  std::map<KvType, CacheMemory> caches_;
  std::deque<CpuBackend> backends_;  // one for each decoder
  std::map<std::pair<Numerics, int>, std::vector<float>> alone_;
};

struct Scheduled {
  int prompt, tokens, done = 0;
  std::vector<std::vector<int32_t>> tables;  // by group
  int checkpoint = 0;                        // tokens before the copy of its state; 0: there is none
};

std::vector<Scheduled> random_sequences(SmallModel& model, const CacheMemory& cache, Random& random) {
  const auto units = shuffled_units(cache, &random);
  std::vector<Scheduled> sequences;
  ptrdiff_t used = 0;
  for (int i = between(random, 1, kMaxSequences); i > 0; --i) {
    const bool is_long = model.prompts() == 4 && random() % 200 == 0;
    Scheduled s{.prompt = is_long ? 3 : between(random, 0, 2), .tokens = 0, .tables = {}};
    const int length = kPromptTokens[s.prompt];
    s.tokens = length > kAttentionSplit ? length : between(random, 1, length);
    const ptrdiff_t needed = (s.tokens + kPageTokens - 1) / kPageTokens;
    if (used + needed > kPages) break;
    for (const auto& of_group : units) s.tables.emplace_back(of_group.begin() + used, of_group.begin() + used + needed);
    used += needed;
    sequences.push_back(s);
  }
  return sequences;
}

// As the engine does, but nobody may miss them: the units hold NaN from now on.
void give_up_behind_windows(CacheMemory& cache, Scheduled& s) {
  for (size_t group = 0; group < s.tables.size(); ++group) {
    const int first = first_visible_page(cache.layout().groups()[group].window, s.done);
    for (int page = 0; page < std::min(first, static_cast<int>(s.tables[group].size())); ++page) {
      int32_t& unit = s.tables[group][static_cast<size_t>(page)];
      if (unit >= 0) std::ranges::fill(cache.unit(unit), std::byte{0xFF});
      unit = -1;
    }
  }
}

// Runs one schedule. Returns the number of rows whose logits differ, and of rows compared.
struct Outcome {
  int differing = 0, compared = 0;
};
Outcome run_schedule(SmallModel& model, const Numerics& numerics, int threads, Random& random) {
  CacheMemory& cache = model.cache(numerics);
  std::vector<Scheduled> sequences = random_sequences(model, cache, random);
  std::vector<std::span<const float>> expected;
  for (const Scheduled& s : sequences) expected.push_back(model.alone(numerics, s.prompt));
  const bool has_states = cache.states() > 0;
  for (int i = 0; has_states && i < kMaxSequences; ++i) std::ranges::fill(cache.state(i), std::byte{0});
  Decoder decoder = model.decoder(numerics, threads);
  const int largest_chunk = std::array{1, 3, 17, 64, kMaxRows}[random() % 5];
  Outcome outcome;
  for (;;) {
    std::vector<Row> rows;
    std::vector<Span> spans;
    std::vector<StateCopy> copies(sequences.size());
    std::vector<std::pair<size_t, int>> wanted;  // sequence, position
    bool waiting = false;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Scheduled& s = sequences[i];
      const int state = has_states ? static_cast<int>(i) : -1, checkpoint = state + kMaxSequences;
      if (s.checkpoint > 0 && random() % 4 == 0) {  // it was preempted, and goes on at its checkpoint
        cache.copy({.of_state = true, .from = checkpoint, .to = state});
        s.done = std::exchange(s.checkpoint, 0);
      } else if (!has_states) {
        give_up_behind_windows(cache, s);
      }
      const int count = std::min({s.tokens - s.done, between(random, random() % 4 == 0 ? 0 : 1, largest_chunk),
                                  kMaxRows - static_cast<int>(rows.size())});
      waiting |= s.done < s.tokens;
      if (count <= 0) continue;  // it sits this step out
      spans.push_back({static_cast<int>(rows.size()), count, s.done, s.tables, state});
      if (has_states && random() % 4 == 0) {
        copies[i] = {between(random, 0, count - 1), checkpoint};
        spans.back().state_copies = {&copies[i], 1};
        s.checkpoint = s.done + copies[i].row + 1;
      }
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

class RandomSchedules : public ::testing::TestWithParam<Subject> {};

TEST_P(RandomSchedules, ChangeNoBitOfALogit) {
  const Subject& subject = GetParam();
  if (!testing::is_known(subject.path())) GTEST_SKIP() << "Quire does not know this family";
  std::vector<const KernelSet*> sets(available_kernels().begin(), available_kernels().end());
  if (sets.size() > 1) sets.erase(sets.begin());  // the reference takes minutes; exactness_test.cc has it
  SmallModel model(subject);
  for (int seed = 0; seed < subject.schedules; ++seed) {
    Random random(static_cast<unsigned>(seed));
    Numerics numerics{
        sets[random() % sets.size()],
        std::array{Activations::kF32, Activations::kBf16, Activations::kInt8, Activations::kInt8x2}[random() % 4],
        kKvTypes[random() % std::size(kKvTypes)]};
    if (subject.default_numerics) {
      numerics.kv = std::array{KvType::kBf16, KvType::kInt8, KvType::kInt4, KvType::kFp8}[random() % 4];
      numerics.activations = seed % 2 ? Activations::kInt8 : Activations::kBf16;
    }
    const int threads = between(random, 1, 4);
    const Outcome outcome = run_schedule(model, numerics, threads, random);
    ASSERT_GT(outcome.compared, 0);
    ASSERT_EQ(outcome.differing, 0) << "of " << outcome.compared << " rows; seed " << seed << ", "
                                    << numerics.kernels->name << " kernels, activations "
                                    << static_cast<int>(numerics.activations) << ", cache type "
                                    << static_cast<int>(numerics.kv) << ", " << threads << " threads";
  }
}

std::vector<Subject> weight_types() {
  std::vector<Subject> all;
  for (const TensorTypeInfo& t : tensor_types()) {
    if (!t.loadable) continue;
    const bool common = t.type <= TensorType::Q8_K || t.type == TensorType::BF16;
    all.push_back(
        {std::string(t.name), [type = t.type] { return testing::tiny_model(type, 1024); }, common ? 200 : 60});
  }
  return all;
}
std::vector<Subject> kinds_of_layers() {
  std::vector<Subject> all;
  for (const std::string name : testing::kGoldenKinds)
    all.push_back({name, [name] { return testing::golden_kind(name); }, 200, true});
  // The golden models' weights are not quantized, so their inputs are bf16.
  all.push_back({"quantized_experts", [] { return testing::tiny_model(TensorType::Q4_1, 512, 0, 8); }, 200, true});
  all.push_back({"quantized_window", [] { return testing::tiny_model(TensorType::Q4_K, 512, 20); }, 200, true});
  return all;
}
// Hugging Face's methods: inputs in other orders (GPTQ), int8 rows (W8A8), with outliers (LLM.int8), coded experts.
std::vector<Subject> quantized_models() {
  std::vector<Subject> all;
  for (const auto& entry : std::filesystem::directory_iterator(golden_dir() / "formats/hf-models")) {
    std::string name = entry.path().filename().string();
    std::ranges::replace(name, '-', '_');
    all.push_back({name, [path = entry.path().string()] { return path; }, 60});
  }
  std::ranges::sort(all, {}, &Subject::name);
  return all;
}
// Inputs that are rotated or multiplied.
std::vector<Subject> transformed_models() {
  std::vector<Subject> all;
  for (const testing::TransformedModel& kind : testing::transformed_models()) {
    struct Made {
      std::unique_ptr<testing::EditedModel> model;
      std::string path;
    };
    const auto path = [edit = kind.edit, made = std::make_shared<Made>()] {
      if (!made->model) {
        made->model = std::make_unique<testing::EditedModel>("llama");
        edit(*made->model);
        made->path = made->model->write();
      }
      return made->path;
    };
    all.push_back({kind.name, path, 60});
  }
  return all;
}
const auto name_of = [](const auto& subject) { return subject.param.name; };

INSTANTIATE_TEST_SUITE_P(WeightTypes, RandomSchedules, ::testing::ValuesIn(weight_types()), name_of);
INSTANTIATE_TEST_SUITE_P(QuantizedModels, RandomSchedules, ::testing::ValuesIn(quantized_models()), name_of);
INSTANTIATE_TEST_SUITE_P(TransformedModels, RandomSchedules, ::testing::ValuesIn(transformed_models()), name_of);
INSTANTIATE_TEST_SUITE_P(Kinds, RandomSchedules, ::testing::ValuesIn(kinds_of_layers()), name_of);

}  // namespace
}  // namespace quire
