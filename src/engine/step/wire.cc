#include "engine/step/wire.h"

#include <bit>
#include <limits>
#include <string>
#include <utility>

namespace quire {
namespace {

// The indices of rows that have something.
template <class Has>
Json indices(const std::vector<Row>& rows, Has has) {
  Json found = Json::array();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (has(rows[i])) found.push_back(i);
  }
  return found;
}

Json to_json(const Span& span) {
  Json state_copies = Json::array();
  for (const StateCopy& copy : span.state_copies) state_copies.push_back({copy.row, copy.slot});
  Json json = {{"rows", span.rows},
               {"position", span.position},
               {"tables", span.tables},
               {"state", span.state},
               {"state_copies", std::move(state_copies)},
               {"rope_variant", span.rope_variant},
               {"drafts", span.drafts}};
  if (span.adapter >= 0) json["adapter"] = span.adapter;
  return json;
}

Json to_json(const PooledRows& pooled) {
  return {{"row", pooled.row},         {"rows", pooled.rows},   {"last", pooled.last},
          {"divisor", pooled.divisor}, {"apart", pooled.apart}, {"sum", bits_of(pooled.sum)}};
}

int index(const JsonField& json, int64_t low = 0) {
  return static_cast<int>(json.integer(low, std::numeric_limits<int32_t>::max()));
}

std::vector<int32_t> numbers(const JsonField& json, size_t count) {
  auto numbers = json.as<std::vector<int32_t>>();
  if (numbers.size() != count) throw json.error("expected {} numbers, found {}", count, numbers.size());
  return numbers;
}

CacheCopy read_copy(const JsonField& json) {
  const auto items = json.elements();
  if (items.size() != 3) throw json.error("expected a kind and two numbers");
  return {.of_state = items[0].string() == "state", .from = index(items[1]), .to = index(items[2])};
}

PooledRows read_pooled(const JsonField& json, size_t rows) {
  PooledRows pooled{.row = index(json.at("row")), .rows = index(json.at("rows")), .sum = {}};
  if (std::cmp_greater(pooled.row, rows) || std::cmp_greater(pooled.rows, rows - static_cast<size_t>(pooled.row)))
    throw json.error("there are only {} rows", rows);
  pooled.last = json.get<bool>("last");
  pooled.divisor = json.get<float>("divisor");
  pooled.apart = json.get_or("apart", false);
  pooled.sum = read_bits(json.at("sum"));
  return pooled;
}

// One after the other, they cover the rows.
void read_spans(const JsonField& json, ReceivedForward& to) {
  ForwardInput& input = to.input;
  size_t next = 0;
  for (const JsonField& span : json.elements()) {
    auto& tables = to.tables.emplace_back();
    for (const JsonField& table : span.at("tables").elements()) tables.push_back(table.as<std::vector<int32_t>>());
    auto& copies = to.state_copies.emplace_back();
    for (const JsonField& copy : span.at("state_copies").elements()) {
      const auto pair = numbers(copy, 2);
      copies.push_back({pair[0], pair[1]});
    }
    const Span& read = input.spans.emplace_back(Span{.row = static_cast<int>(next),
                                                     .rows = index(span.at("rows"), 1),
                                                     .position = index(span.at("position")),
                                                     .tables = tables,
                                                     .state = index(span.at("state"), -1),
                                                     .state_copies = copies,
                                                     .rope_variant = index(span.at("rope_variant")),
                                                     .drafts = index(span.at("drafts")),
                                                     .adapter = span.has("adapter") ? index(span.at("adapter")) : -1});
    if (span.has("sequence")) input.sequences.push_back(SequenceId{span.get<uint64_t>("sequence")});
    next += static_cast<size_t>(read.rows);
    if (next > input.rows.size()) break;
    for (int i = 0; i < read.rows; ++i) input.rows[static_cast<size_t>(read.row + i)].position = read.position + i;
  }
  if (next != input.rows.size() && !(input.by_drafter && input.spans.empty()))
    throw json.error("its spans cover {} rows, but there are {} tokens", next, input.rows.size());
}

}  // namespace

Json bits_of(std::span<const float> numbers) {
  Json bits = Json::array();
  for (const float x : numbers) bits.push_back(std::bit_cast<uint32_t>(x));
  return bits;
}

std::vector<float> read_bits(const JsonField& json) {
  std::vector<float> numbers;
  for (const uint32_t bits : json.as<std::vector<uint32_t>>()) numbers.push_back(std::bit_cast<float>(bits));
  return numbers;
}

Json to_json(const CacheChanges& changes) {
  Json advances = Json::array(), copies = Json::array();
  for (const StateAdvance& a : changes.advances) advances.push_back({a.slot, a.row, a.rows});
  for (const CacheCopy& c : changes.copies) copies.push_back({c.of_state ? "state" : "unit", c.from, c.to});
  return {{"advances", std::move(advances)}, {"copies", std::move(copies)}};
}

CacheChanges read_changes(const JsonField& json) {
  CacheChanges changes;
  for (const JsonField& advance : json.at("advances").elements()) {
    const auto read = numbers(advance, 3);
    changes.advances.push_back({.slot = read[0], .row = read[1], .rows = read[2]});
  }
  for (const JsonField& copy : json.at("copies").elements()) changes.copies.push_back(read_copy(copy));
  return changes;
}

// Rows are kept in columns: those that differ by row. What most orders lack is left out.
Json to_json(const ForwardInput& input) {
  Json json = to_json(input.changes), tokens = Json::array(), spans = Json::array();
  for (const Row& row : input.rows) tokens.push_back(row.token);
  for (size_t i = 0; i < input.spans.size(); ++i) {
    spans.push_back(to_json(input.spans[i]));
    if (i < input.sequences.size()) spans.back()["sequence"] = input.sequences[i];
  }
  json["tokens"] = std::move(tokens);
  json["wants_logits"] = indices(input.rows, [](const Row& row) { return row.wants_logits; });
  json["segments"] = indices(input.rows, [](const Row& row) { return row.segment != 0; });
  json["spans"] = std::move(spans);
  Json hidden = indices(input.rows, [](const Row& row) { return row.wants_hidden; });
  if (!hidden.empty()) json["wants_hidden"] = std::move(hidden);
  for (const PooledRows& pooled : input.pooled) json["pooled"].push_back(to_json(pooled));
  if (!input.by_drafter) return json;
  json["by_drafter"] = true;
  json["features"] = input.features;
  json["predicted"] = input.predicted;
  json["heads"] = input.heads;
  return json;
}

ReceivedForward read_forward(const JsonField& json) {
  ReceivedForward read;
  ForwardInput& input = read.input;
  input.changes = read_changes(json);
  input.by_drafter = json.get_or("by_drafter", false);
  for (const int32_t token : json.get<std::vector<int32_t>>("tokens"))
    input.rows.push_back({.token = token, .position = 0, .wants_logits = false});
  const auto rows_of = [&](std::string_view key, auto set) {
    if (!json.has(key)) return;
    for (const JsonField& item : json.at(key).elements())
      set(input.rows[static_cast<size_t>(item.integer(0, static_cast<int64_t>(input.rows.size()) - 1))]);
  };
  rows_of("wants_logits", [](Row& row) { row.wants_logits = true; });
  rows_of("wants_hidden", [](Row& row) { row.wants_hidden = true; });
  rows_of("segments", [](Row& row) { row.segment = 1; });
  read.tables.reserve(json.at("spans").size());
  read.state_copies.reserve(json.at("spans").size());
  read_spans(json.at("spans"), read);
  if (json.has("pooled")) {
    for (const JsonField& pooled : json.at("pooled").elements())
      input.pooled.push_back(read_pooled(pooled, input.rows.size()));
  }
  if (!input.by_drafter) return read;
  input.features = json.get<std::vector<int32_t>>("features");
  input.predicted = json.get<bool>("predicted");
  input.heads = index(json.at("heads"));
  return read;
}

}  // namespace quire
