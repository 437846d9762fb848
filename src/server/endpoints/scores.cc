#include "server/endpoints/scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace quire {
namespace {

double score_of(std::span<const float> results, Score score) {
  switch (score) {
    case Score::kSigmoid:
      return 1 / (1 + std::exp(-double{results[0]}));
    case Score::kYesNo:
      return 1 / (1 + std::exp(double{results[1]} - double{results[0]}));
    case Score::kRaw:
      break;
  }
  return results[0];
}

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
    if (head_.request.api == Api::kScore) {
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

}  // namespace

std::unique_ptr<Answer> scores_body(ResponseHead head) { return std::make_unique<ScoresBody>(std::move(head)); }

}  // namespace quire
