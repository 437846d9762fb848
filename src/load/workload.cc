#include "load/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string_view>

#include "base/error.h"
#include "load/trace.h"

namespace quire {
namespace {

// Independent streams of random numbers.
enum class Stream : uint64_t { kArrivals, kPrefix, kBlock, kOwn };

std::mt19937_64 random(uint64_t seed, Stream stream, uint64_t index) {
  std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(stream),
                         static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32)};
  return std::mt19937_64(sequence);
}

int scaled(int length, double scale) { return std::max(1, static_cast<int>(std::lround(length * scale))); }

// Composes a prompt: each emit(stream, index, count) asks for the first `count` items of a random stream.
template <class Emit>
void compose_prompt(const Workload& workload, size_t request, const Emit& emit) {
  const PlannedRequest& planned = workload.requests.at(request);
  int left = planned.input_tokens;
  const auto take = [&](Stream stream, uint64_t index, int count) {
    emit(stream, index, std::min(count, left));
    left -= std::min(count, left);
  };
  take(Stream::kPrefix, 0, workload.shared_prefix);
  for (const int64_t block : planned.blocks) take(Stream::kBlock, static_cast<uint64_t>(block), workload.block_tokens);
  take(Stream::kOwn, request, left);
}

constexpr std::array<std::string_view, 64> kWords = {
    "time",   "year",    "people",  "way",     "day",      "man",     "thing",      "woman",  "life",  "child",
    "world",  "state",   "family",  "group",   "country",  "problem", "hand",       "part",   "place", "case",
    "week",   "company", "system",  "program", "question", "work",    "government", "number", "night", "point",
    "home",   "water",   "room",    "mother",  "area",     "money",   "story",      "fact",   "month", "lot",
    "right",  "study",   "book",    "eye",     "job",      "word",    "business",   "issue",  "side",  "kind",
    "head",   "house",   "service", "friend",  "father",   "power",   "hour",       "game",   "line",  "end",
    "member", "law",     "car",     "city"};

}  // namespace

Workload plan_workload(const WorkloadOptions& o) {
  Workload workload;
  workload.seed = o.seed;
  workload.shared_prefix = o.shared_prefix;
  if (o.trace.empty()) {
    workload.requests.assign(static_cast<size_t>(o.requests), {0, o.input_tokens, o.output_tokens, {}});
    if (o.shared_prefix > o.input_tokens)
      throw invalid("--shared-prefix {} is longer than the prompts; --input is {}", o.shared_prefix, o.input_tokens);
  } else {
    std::vector<TraceRow> rows = read_trace(o.trace);
    if (static_cast<size_t>(o.skip) >= rows.size())
      throw invalid("--skip {} leaves no requests: {} has {}", o.skip, o.trace, rows.size());
    rows.erase(rows.begin(), rows.begin() + o.skip);
    if (static_cast<size_t>(o.requests) > rows.size())
      throw invalid("--requests {} is too many: {} has {} after --skip {}", o.requests, o.trace, rows.size(), o.skip);
    if (o.requests > 0) rows.resize(static_cast<size_t>(o.requests));
    const double start = rows.front().at;
    workload.block_tokens = scaled(kTraceBlockTokens, o.length_scale);
    for (TraceRow& row : rows) {
      PlannedRequest request{.at = (row.at - start) * o.time_scale,
                             .input_tokens = scaled(row.input_tokens, o.length_scale) + o.shared_prefix,
                             .output_tokens = scaled(row.output_tokens, o.length_scale),
                             .blocks = std::move(row.blocks)};
      const auto cut = [](int& length, int most) {
        const bool longer = most > 0 && length > most;
        if (longer) length = most;
        return longer;
      };
      const bool input_cut = cut(request.input_tokens, o.max_input_tokens);
      if (cut(request.output_tokens, o.max_output_tokens) || input_cut) ++workload.shortened;
      workload.requests.push_back(std::move(request));
    }
  }
  if (o.rate > 0) {
    auto generator = random(o.seed, Stream::kArrivals, 0);
    double at = 0;
    for (PlannedRequest& request : workload.requests) {
      request.at = at;
      // 53 bits make a double in [0, 1). std::exponential_distribution differs between standard libraries.
      at -= std::log1p(-static_cast<double>(generator() >> 11) * 0x1p-53) / o.rate;
    }
  }
  return workload;
}

std::vector<PlannedPiece> prompt_pieces(const Workload& workload, size_t request) {
  std::vector<PlannedPiece> pieces;
  compose_prompt(workload, request, [&](Stream stream, uint64_t index, int count) {
    if (count > 0) pieces.push_back({random(workload.seed, stream, index)(), count});
  });
  return pieces;
}

std::vector<int32_t> prompt_tokens(const Workload& workload, size_t request, int32_t first_id, int32_t last_id) {
  std::vector<int32_t> tokens;
  const auto range = static_cast<uint64_t>(last_id - first_id + 1);
  compose_prompt(workload, request, [&](Stream stream, uint64_t index, int count) {
    auto generator = random(workload.seed, stream, index);
    for (int i = 0; i < count; ++i) tokens.push_back(first_id + static_cast<int32_t>(generator() % range));
  });
  return tokens;
}

std::string prompt_words(const Workload& workload, size_t request) {
  std::string text;
  compose_prompt(workload, request, [&](Stream stream, uint64_t index, int count) {
    auto generator = random(workload.seed, stream, index);
    for (int i = 0; i < count; ++i) {
      if (!text.empty()) text += ' ';
      text += kWords[generator() % kWords.size()];
    }
  });
  return text;
}

}  // namespace quire
