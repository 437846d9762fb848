// /dashboard/explain: the numbers of one forward pass, shortened for people.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/explain/explanation.h"
#include "server/api/definition.h"
#include "server/api/request/prompts.h"
#include "server/api/service.h"

namespace quire {
namespace {

constexpr size_t kShownNumbers = 16;  // of a vector
constexpr size_t kShownTokens = 10;   // of the logits
constexpr int kMostTextBytes = 1024;  // far more than so many tokens of ordinary text have

// Five significant digits are enough to draw and to read. null: not finite, as overflow makes it.
Json shortened(double value) {
  return std::isfinite(value) ? Json::parse(fmt::format("{:.5g}", value)) : Json(nullptr);
}

Json numbers(std::span<const float> values) {
  Json list = Json::array();
  for (const float value : values) list.push_back(shortened(value));
  return list;
}

double length(std::span<const float> x) {
  return std::sqrt(std::transform_reduce(x.begin(), x.end(), 0.0, std::plus<>(), [](double v) { return v * v; }));
}

Json vector_json(std::span<const float> values) {
  return {{"size", values.size()},
          {"norm", shortened(length(values))},
          {"values", numbers(values.first(std::min(values.size(), kShownNumbers)))}};
}

Json norms(const std::vector<std::vector<float>>& vectors) {
  Json list = Json::array();
  for (const auto& vector : vectors) list.push_back(shortened(length(vector)));
  return list;
}

// The most probable tokens, by the softmax of the logits without a sampler. Of equal logits, the lower id comes first.
Json top_tokens(const std::vector<float>& logits, const ServedText& text) {
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](TokenId id) {  // NaN has no order
    const float value = logits[static_cast<size_t>(id)];
    return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
  };
  const size_t shown = std::min(kShownTokens, ids.size());
  std::ranges::partial_sort(ids, ids.begin() + static_cast<ptrdiff_t>(shown),
                            [&](TokenId a, TokenId b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  Json list = Json::array();
  if (ids.empty()) return list;
  double sum = 0;
  for (TokenId id = 0; std::cmp_less(id, logits.size()); ++id) sum += std::exp(double{logit(id)} - logit(ids[0]));
  for (const TokenId id : std::span(ids).first(shown)) {
    const double value = logit(id);
    list.push_back({{"id", id},
                    {"text", text.token_text(id)},
                    {"logit", std::isfinite(value) ? Json(value) : Json(nullptr)},
                    {"probability", shortened(std::exp(value - logit(ids[0])) / sum)}});
  }
  return list;
}

std::optional<std::string> explain(Service& service, ApiRequest& request) {
  if (!service.options().dashboard)
    throw ApiError(404, "the dashboard is switched off (--no-dashboard)", "invalid_request_error", {}, "unknown_url");
  const TokenIds ids = service.encode(request, 0);
  if (ids.empty() || ids.size() > ExplainRequest::kMostTokens)
    throw bad_request("text", "has {} tokens; it must have 1 to {}", ids.size(), ExplainRequest::kMostTokens);
  note_work("explaining {} tokens", ids.size());
  const Explanation e = service.explain({.tokens = ids, .layer = request.layer, .head = request.head});
  Json tokens = Json::array(), embeddings = Json::array(), path = Json::array(), residual = Json::array();
  for (const TokenId id : ids) tokens.push_back({{"id", id}, {"text", service.text().token_text(id)}});
  for (const auto& embedding : e.embeddings) embeddings.push_back(vector_json(embedding));
  for (const ExplainedVector& v : e.path) {
    path.push_back(vector_json(v.values));
    path.back()["place"] = v.place;
  }
  for (const double norm : e.residual_norms) residual.push_back(shortened(norm));
  Json attention = nullptr;
  if (!e.weights.empty()) {
    attention = {{"scores", numbers(e.scores)},
                 {"weights", numbers(e.weights)},
                 {"sink", shortened(e.sink)},
                 {"key_norms", norms(e.keys)},
                 {"value_norms", norms(e.values)}};
  }
  return dump({{"layers", e.layers},
               {"layer", e.layer},
               {"heads", e.heads},
               {"head", e.head},
               {"kv_head", e.kv_head},
               {"tokens", std::move(tokens)},
               {"embeddings", std::move(embeddings)},
               {"path", std::move(path)},
               {"attention", std::move(attention)},
               {"residual_norms", std::move(residual)},
               {"top_tokens", top_tokens(e.logits, service.text())}});
}

void read_text(ApiDraft& draft, const JsonField& field) {
  if (field.string().size() > kMostTextBytes)
    throw field.error("has {} bytes; at most {} are allowed", field.string().size(), kMostTextBytes);
  read_one_text(draft, field);
}

// Of a layer or a head. Which there are, the model says.
uint16_t index_of(const JsonField& field) { return static_cast<uint16_t>(field.integer(0, UINT16_MAX)); }

constexpr std::string_view kIndexSchema = R"({"type": "integer", "minimum": 0, "maximum": 65535, "default": 0})";

constexpr std::string_view kSchemas = R"json({
  "ExplainedVector": {"type": "object", "required": ["size", "norm", "values"], "properties": {
    "size": {"type": "integer"}, "norm": {"type": ["number", "null"], "description": "Euclidean, of all elements; null: not finite"},
    "values": {"type": "array", "maxItems": 16, "items": {"type": ["number", "null"]}, "description": "the first elements"},
    "place": {"type": "string", "description": "in a path: where the pass has this vector"}}},
  "Explanation": {"type": "object",
    "required": ["layers", "layer", "heads", "head", "kv_head", "tokens", "embeddings", "path", "attention",
                 "residual_norms", "top_tokens"],
    "properties": {"layers": {"type": "integer"}, "layer": {"type": "integer"},
      "heads": {"type": "integer", "description": "of the layer's attention; 0: it has none"},
      "head": {"type": "integer"}, "kv_head": {"type": "integer"},
      "tokens": {"type": "array", "maxItems": 16, "items": {"type": "object", "required": ["id", "text"],
        "properties": {"id": {"type": "integer"}, "text": {"type": "string"}}}},
      "embeddings": {"type": "array", "items": {"$ref": "#/components/schemas/ExplainedVector"}},
      "path": {"type": "array", "items": {"$ref": "#/components/schemas/ExplainedVector"},
        "description": "of the last token, in the order of computation"},
      "attention": {"type": ["object", "null"], "description": "the last token's row; null: the layer has none",
        "properties": {"scores": {"type": "array", "items": {"type": ["number", "null"]}},
          "weights": {"type": "array", "items": {"type": ["number", "null"]}}, "sink": {"type": ["number", "null"]},
          "key_norms": {"type": "array", "items": {"type": ["number", "null"]}},
          "value_norms": {"type": "array", "items": {"type": ["number", "null"]}}}},
      "residual_norms": {"type": "array", "items": {"type": ["number", "null"]}},
      "top_tokens": {"type": "array", "maxItems": 10, "items": {"type": "object",
        "required": ["id", "text", "logit", "probability"], "properties": {"id": {"type": "integer"},
          "text": {"type": "string"}, "logit": {"type": ["number", "null"]}, "probability": {"type": ["number", "null"]}}}}}}
})json";

}  // namespace

const ApiDefinition& explain_api() {
  static const ApiDefinition api{
      .path = "/dashboard/explain",
      .summary = "Show the numbers of a forward pass over a short text.",
      .fields = {kModelField,
                 {"text", read_text, R"({"type": "string", "minLength": 1, "maxLength": 1024})",
                  "1 to 16 tokens, with those that the model puts around a text"},
                 {"layer", [](ApiDraft& d, const JsonField& f) { d.layer = index_of(f); }, kIndexSchema,
                  "whose numbers are shown"},
                 {"head", [](ApiDraft& d, const JsonField& f) { d.head = index_of(f); }, kIndexSchema,
                  "of its attention"}},
      .required = {"text"},
      .reply = explain,
      .prompt_field = "text",
      .reply_computes = true,
      .answer_schema = "Explanation",
      .schemas = kSchemas};
  return api;
}

}  // namespace quire
