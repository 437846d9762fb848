#include "engine/step/recording.h"

#include <spdlog/spdlog.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/quote.h"
#include "json/field.h"

namespace quire {
namespace {

constexpr int kVersion = 3;
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

Json as_json(const RecordingHeader& h) {
  return {{"quire_recording", kVersion},
          {"model", h.model},
          {"identity", h.identity},
          {"kernels", h.kernels},
          {"activations", h.activations},
          {"kv_cache_dtype", h.kv_cache_dtype},
          {"units", h.units},
          {"states", h.states},
          {"max_rows", h.limits.max_rows},
          {"max_logits", h.limits.max_logits},
          {"max_positions", h.limits.max_positions},
          {"max_drafted", h.limits.max_drafted}};
}

RecordingHeader read_header(const JsonField& json) {
  if (!json.has("quire_recording")) throw json.error("not a recording of Quire; make one with --record");
  if (json.get<int32_t>("quire_recording") != kVersion)
    throw json.error("a recording of version {}, but this Quire reads version {}", json.get<int32_t>("quire_recording"),
                     kVersion);
  const auto count = [&](const char* key, int64_t low) { return static_cast<int>(json.at(key).integer(low, kMost)); };
  return {.model = json.get<std::string>("model"),
          .identity = json.get<std::string>("identity"),
          .kernels = json.get<std::string>("kernels"),
          .activations = json.get<std::string>("activations"),
          .kv_cache_dtype = json.get<std::string>("kv_cache_dtype"),
          .units = count("units", 1),
          .states = count("states", 0),
          .limits = {.max_rows = count("max_rows", 1),
                     .max_logits = count("max_logits", 1),
                     .max_positions = count("max_positions", 1),
                     .max_drafted = count("max_drafted", 0)}};
}

constexpr size_t kLongestHeader = size_t{1} << 20, kLongestLine = size_t{64} << 20;

// Rows are kept in columns: those that differ by row.
Json as_json(const StepInput& input, const std::vector<std::string>& logits) {
  Json advances = Json::array(), copies = Json::array(), tokens = Json::array(), wants = Json::array(),
       segments = Json::array(), spans = Json::array();
  for (const StateAdvance& a : input.advances) advances.push_back({a.slot, a.row, a.rows});
  for (const CacheCopy& copy : input.copies) copies.push_back({copy.of_state ? "state" : "unit", copy.from, copy.to});
  for (size_t i = 0; i < input.rows.size(); ++i) {
    tokens.push_back(input.rows[i].token);
    if (input.rows[i].wants_logits) wants.push_back(i);
    if (input.rows[i].segment != 0) segments.push_back(i);
  }
  for (size_t i = 0; i < input.spans.size(); ++i) {
    const Span& span = input.spans[i];
    Json state_copies = Json::array();
    for (const StateCopy& copy : span.state_copies) state_copies.push_back({copy.row, copy.slot});
    spans.push_back({{"sequence", input.sequences[i]},
                     {"rows", span.rows},
                     {"position", span.position},
                     {"tables", span.tables},
                     {"state", span.state},
                     {"state_copies", std::move(state_copies)},
                     {"rope_variant", span.rope_variant},
                     {"drafts", span.drafts}});
  }
  return {{"advances", std::move(advances)},
          {"copies", std::move(copies)},
          {"tokens", std::move(tokens)},
          {"wants_logits", std::move(wants)},
          {"spans", std::move(spans)},
          {"segments", std::move(segments)},
          {"logits", logits}};
}

int index(const JsonField& json, int64_t low = 0) { return static_cast<int>(json.integer(low, kMost)); }

// A pair of numbers.
std::pair<int, int> read_pair(const JsonField& json) {
  const auto numbers = json.as<std::vector<int32_t>>();
  if (numbers.size() != 2) throw json.error("expected two numbers, found {}", numbers.size());
  return {numbers[0], numbers[1]};
}

CacheCopy read_copy(const JsonField& json) {
  const auto items = json.elements();
  if (items.size() != 3) throw json.error("expected a kind and two numbers");
  return {.of_state = items[0].string() == "state", .from = index(items[1]), .to = index(items[2])};
}

StateAdvance read_advance(const JsonField& json) {
  const auto numbers = json.as<std::vector<int32_t>>();
  if (numbers.size() != 3) throw json.error("expected three numbers, found {}", numbers.size());
  return {.slot = numbers[0], .row = numbers[1], .rows = numbers[2]};
}

RecordedStep::Part read_part(const JsonField& json, int first_row) {
  RecordedStep::Part part;
  part.sequence = SequenceId{json.get<uint64_t>("sequence")};
  for (const JsonField& table : json.at("tables").elements()) part.tables.push_back(table.as<std::vector<int32_t>>());
  for (const JsonField& copy : json.at("state_copies").elements()) {
    const auto [row, slot] = read_pair(copy);
    part.state_copies.push_back({row, slot});
  }
  part.span = {.row = first_row,
               .rows = index(json.at("rows"), 1),
               .position = index(json.at("position")),
               .tables = {},
               .state = index(json.at("state"), -1),
               .rope_variant = index(json.at("rope_variant")),
               .drafts = index(json.at("drafts"))};
  return part;
}

RecordedStep read_step(const JsonField& json) {
  RecordedStep step;
  for (const JsonField& advance : json.at("advances").elements()) step.advances.push_back(read_advance(advance));
  for (const JsonField& copy : json.at("copies").elements()) step.copies.push_back(read_copy(copy));
  for (const int32_t token : json.get<std::vector<int32_t>>("tokens"))
    step.rows.push_back({.token = token, .position = 0, .wants_logits = false});
  const auto row_of = [&](const JsonField& item) -> Row& {
    return step.rows[static_cast<size_t>(item.integer(0, static_cast<int64_t>(step.rows.size()) - 1))];
  };
  for (const JsonField& row : json.at("wants_logits").elements()) row_of(row).wants_logits = true;
  for (const JsonField& row : json.at("segments").elements()) row_of(row).segment = 1;
  int64_t rows = 0;
  for (const JsonField& span : json.at("spans").elements()) {
    const RecordedStep::Part& part = step.parts.emplace_back(read_part(span, static_cast<int>(rows)));
    rows += part.span.rows;
    if (rows > static_cast<int64_t>(step.rows.size())) break;
    for (int i = 0; i < part.span.rows; ++i)
      step.rows[static_cast<size_t>(part.span.row + i)].position = part.span.position + i;
  }
  if (rows != static_cast<int64_t>(step.rows.size()))
    throw json.error("its spans cover {} rows, but there are {} tokens", rows, step.rows.size());
  step.logits = json.get<std::vector<std::string>>("logits");
  for (const JsonField& sampled : json.at("sampled").elements()) {
    step.sampled.push_back(
        {SequenceId{sampled.get<uint64_t>("sequence")}, sampled.get<std::vector<int32_t>>("tokens")});
  }
  return step;
}

}  // namespace

std::vector<Span> RecordedStep::spans() const {
  std::vector<Span> spans;
  for (const Part& part : parts) {
    Span span = part.span;
    span.tables = part.tables;
    span.state_copies = part.state_copies;
    spans.push_back(span);
  }
  return spans;
}

std::string hash_of(std::span<const float> logits) {
  const XXH128_hash_t hash = XXH3_128bits(logits.data(), logits.size_bytes());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

StepRecorder::StepRecorder(const std::string& path, const RecordingHeader& header)
    : path_(path), file_(path, std::ios::binary) {
  file_ << as_json(header).dump() << std::endl;
  if (!file_) throw no_resource("cannot write the recording {}", quote(path));
}

void StepRecorder::begin(const StepInput& input, std::span<const float> logits) {
  if (!file_.is_open()) return;
  logits_.clear();
  const auto wanted = static_cast<size_t>(std::ranges::count_if(input.rows, &Row::wants_logits));
  if (wanted == 0) return;
  const size_t vocab = logits.size() / wanted;
  for (size_t row = 0; row < wanted; ++row) logits_.push_back(hash_of(logits.subspan(row * vocab, vocab)));
}

void StepRecorder::end(const StepInput& input, const StepOutput& output) {
  if (!file_.is_open()) return;
  Json step = as_json(input, logits_);
  Json sampled = Json::array();
  for (size_t i = 0; i < input.samples.size(); ++i) {
    if (!input.samples[i].samples) continue;
    Json tokens = Json::array();
    for (const Output& out : output.results[i].chosen.outputs) tokens.push_back(out.tokens.at(0).id);
    sampled.push_back({{"sequence", input.samples[i].sequence->id}, {"tokens", std::move(tokens)}});
  }
  step["sampled"] = std::move(sampled);
  step["step"] = ++steps_;
  file_ << step.dump() << std::endl;  // flushed: it should end where a crash began
  if (file_) return;
  spdlog::warn("the recording {} ends here: it cannot be written", quote(path_));
  file_.close();
}

StepRecorder::~StepRecorder() {
  if (file_.is_open()) file_ << Json({{"steps", steps_}}).dump() << std::endl;
}

RecordingReader::RecordingReader(const std::string& path) : path_(path), file_(path, path) {
  std::string line;
  if (!file_.next(line, kLongestHeader)) throw not_found("cannot read the recording {}: it is empty", quote(path));
  header_ = read_header(JsonField::parse(line, fmt::format("{}:{}", path_, file_.number())));
}

std::optional<RecordedStep> RecordingReader::next() {
  std::string line;
  if (!file_.next(line, kLongestLine)) return std::nullopt;
  const auto json = JsonField::parse(line, fmt::format("{}:{}", path_, file_.number()));
  if (is_complete_) throw json.error("follows the end of the recording; it was written by something else");
  if (json.has("steps")) {
    if (json.get<int64_t>("steps") != steps_)
      throw json.error("the recording has {} steps, but {} were written", steps_, json.get<int64_t>("steps"));
    is_complete_ = true;
    return next();
  }
  if (json.get<int64_t>("step") != ++steps_)
    throw json.error("expected step {}, found {}", steps_, json.get<int64_t>("step"));
  return read_step(json);
}

}  // namespace quire
