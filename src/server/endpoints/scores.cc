// /v1/rerank and /v1/score: how well documents fit queries, by a classifier that reads both or by their embeddings.
#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "quire/text.h"
#include "server/api/definition.h"
#include "server/api/request/field_readers.h"
#include "server/api/service.h"

namespace quire {

const ApiDefinition& score_api();

namespace {

// Of vectors of length 1.
double cosine(std::span<const float> a, std::span<const float> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                            [](float x, float y) { return double{x} * double{y}; });
}

class ScoresBody final : public Answer {
 public:
  explicit ScoresBody(ResponseHead head) : head_(std::move(head)), vectors_(static_cast<size_t>(head_.choices())) {}

  void add(int index, const Output& output, std::string&) override {
    if (!output.embedding.empty()) vectors_.at(static_cast<size_t>(index)) = output.embedding;
  }

  void end(std::string& out) override {
    const Json usage = {{"prompt_tokens", head_.prompt_tokens}, {"total_tokens", head_.prompt_tokens}};
    if (head_.request.api == &score_api()) {
      Json data = Json::array();
      for (size_t i = 0; i < documents(); ++i) data.push_back({{"index", i}, {"object", "score"}, {"score", score(i)}});
      out += dump({{"id", head_.id},
                   {"object", "list"},
                   {"created", head_.created},
                   {"model", head_.request.model},
                   {"data", std::move(data)},
                   {"usage", usage}});
      return;
    }
    out += dump({{"id", head_.id}, {"model", head_.request.model}, {"usage", usage}, {"results", ranking()}});
  }

 private:
  size_t documents() const { return head_.request.documents.size(); }

  double score(size_t document) const {
    if (head_.request.scores_pairs) return score_of(vectors_[document], head_.score);
    const size_t queries = head_.request.queries.size();  // their vectors come first
    return cosine(vectors_[queries > 1 ? document : 0], vectors_[queries + document]);
  }

  // The best documents, in the order of their scores.
  Json ranking() const {
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < documents(); ++i) order.emplace_back(score(i), i);
    std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.first > b.first; });
    if (const int n = head_.request.top_n; n > 0 && std::cmp_less(n, order.size()))
      order.resize(static_cast<size_t>(n));
    Json results = Json::array();
    for (const auto& [score, index] : order) {
      Json result = {{"index", index}, {"relevance_score", score}};
      if (head_.request.return_documents) result["document"] = {{"text", head_.request.documents[index]}};
      results.push_back(std::move(result));
    }
    return results;
  }

  ResponseHead head_;
  std::vector<std::vector<float>> vectors_;
};

// A classifier reads each query with its document; a model for embeddings reads all of them alone.
void adapt_scores(ApiRequest& request, const Service& service) {
  const ModelInfo& model = service.model();
  const bool has_scores = model.labels == 1 || model.score == Score::kYesNo;
  if (!has_scores && (model.labels > 0 || model.pooling == Pooling::kNone)) {
    throw bad_request("model", "{} does not score texts; serve a cross-encoder, Qwen3-Reranker or an embedding model",
                      model.name);
  }
  request.scores_pairs = has_scores;
  if (!request.scores_pairs) request.prompts.assign(request.queries.begin(), request.queries.end());
  request.prompts.insert(request.prompts.end(), request.documents.begin(), request.documents.end());
  if (request.prompts.size() > kMaxPrompts)
    throw bad_request("documents", "{} texts are too many; at most {} are allowed", request.prompts.size(),
                      kMaxPrompts);
}

// Each list has either of two names, so neither field is required by itself.
void settle_score(ApiDraft& draft) {
  if (draft.queries.empty()) throw bad_request("text_1", "is required");
  if (draft.documents.empty()) throw bad_request("text_2", "is required");
  if (draft.queries.size() != 1 && draft.queries.size() != draft.documents.size()) {
    throw bad_request("text_1", "{} texts cannot be compared with {}; give one for all, or as many",
                      draft.queries.size(), draft.documents.size());
  }
  settle_pooling(draft);
}

std::unique_ptr<Answer> scores_body(ResponseHead head, TokenBytes) {
  return std::make_unique<ScoresBody>(std::move(head));
}

constexpr ApiField kScoreFields[] = {
    {"documents", read_scored_documents, schemas::kDocuments, "texts, or objects with a text"},
    {"truncate_prompt_tokens", read_truncate_prompt_tokens,
     R"({"anyOf": [{"const": -1}, {"type": "integer", "minimum": 1, "maximum": 2147483647}]})",
     "cut the longer text, in prompts of decoders the document, until the pair has at most so many tokens; -1: as many "
     "as fit"},
};

constexpr std::string_view kScoreSchemas = R"json({
  "Ranking": {"type": "object", "required": ["id", "model", "usage", "results"],
    "properties": {"id": {"type": "string"}, "model": {"type": "string"},
      "usage": {"type": "object", "required": ["prompt_tokens", "total_tokens"]},
      "results": {"type": "array", "items": {"type": "object", "required": ["index", "relevance_score"],
        "properties": {"index": {"type": "integer"}, "relevance_score": {"type": "number"},
          "document": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}}}}}},
  "Scores": {"type": "object", "required": ["id", "object", "created", "model", "data", "usage"],
    "properties": {"id": {"type": "string"}, "object": {"const": "list"}, "created": {"type": "integer"},
      "model": {"type": "string"}, "usage": {"type": "object", "required": ["prompt_tokens", "total_tokens"]},
      "data": {"type": "array", "items": {"type": "object", "required": ["index", "object", "score"],
        "properties": {"index": {"type": "integer"}, "object": {"const": "score"}, "score": {"type": "number"}}}}}}
})json";

}  // namespace

const ApiDefinition& rerank_api() {
  static const ApiDefinition api{
      .path = "/v1/rerank",
      .summary = "Order documents by their relevance to a query.",
      .other_paths = {"/v2/rerank", "/reranking"},
      .in_batches = true,
      .fields = join({kModelField,
                      {"query", read_query, schemas::kText},
                      {"top_n", read_top_n, R"({"type": "integer", "minimum": 0, "maximum": 2147483647})",
                       "only so many of the best documents; 0: all"},
                      {"return_documents", &ApiRequest::return_documents, {}, "with their texts; true by default"},
                      kParseSpecialField},
                     {kScoreFields, engine_fields()}),
      .refused = {{"max_tokens_per_doc", "[]", "use truncate_prompt_tokens"},
                  {"max_chunks_per_doc", "[]", "use truncate_prompt_tokens"},
                  {"rank_fields", "[]", "send texts"}},
      .required = {"query", "documents"},
      .settle = settle_pooling,
      .adapt = adapt_scores,
      .answer = scores_body,
      .id_prefix = "rerank-",
      .prompt_field = "documents",
      .answer_schema = "Ranking",
      .schemas = kScoreSchemas};
  return api;
}

const ApiDefinition& score_api() {
  static const ApiDefinition api{
      .path = "/v1/score",
      .summary = "Score pairs of texts.",
      .in_batches = true,
      .fields = join({kModelField,
                      {"queries", read_queries, schemas::kDocuments, "one for all documents, or one for each"},
                      {"text_1", read_queries, schemas::kDocuments, "queries"},
                      {"text_2", read_scored_documents, schemas::kDocuments, "documents"},
                      kParseSpecialField},
                     {kScoreFields, engine_fields()}),
      .settle = settle_score,
      .adapt = adapt_scores,
      .answer = scores_body,
      .id_prefix = "score-",
      .prompt_field = "documents",
      .answer_schema = "Scores"};
  return api;
}

}  // namespace quire
