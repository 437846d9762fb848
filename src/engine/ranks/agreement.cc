#include "engine/ranks/agreement.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/error.h"
#include "json/field.h"
#include "json/parse.h"

namespace quire {
namespace {

// Everybody's numbers, by rank.
std::vector<int64_t> numbers_of_all(ProcessGroup& group, const std::vector<int64_t>& mine) {
  const auto ranks = static_cast<size_t>(group.ranks());
  const std::vector<size_t> sizes(ranks, mine.size() * sizeof(int64_t));
  std::vector<int64_t> all(ranks * mine.size());
  group.exchange(std::as_bytes(std::span(mine)), sizes, std::as_writable_bytes(std::span(all)));
  std::ranges::copy(mine, all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(group.rank()) * mine.size()));
  return all;
}

// Everybody's text, by rank.
std::vector<std::string> texts_of_all(ProcessGroup& group, const std::string& mine) {
  std::vector<size_t> sizes;
  size_t sum = 0;
  for (const int64_t size : numbers_of_all(group, {static_cast<int64_t>(mine.size())}))
    sum += sizes.emplace_back(static_cast<size_t>(size));
  std::string all(sum, '\0');
  group.exchange(std::as_bytes(std::span(mine)), sizes, std::as_writable_bytes(std::span(all)));
  std::vector<std::string> texts;
  size_t at = 0;
  for (const size_t size : sizes) {
    texts.push_back(all.substr(at, size));
    at += size;
  }
  texts[static_cast<size_t>(group.rank())] = mine;
  return texts;
}

}  // namespace

void require_same(ProcessGroup& group, const std::vector<RankFact>& facts) {
  Json mine = Json::object();
  for (const RankFact& fact : facts) mine[fact.what] = fact.value;
  const std::vector<std::string> texts = texts_of_all(group, mine.dump());
  const Json first = parse_json(texts[0], group.name(0));
  for (int rank = 1; rank < group.ranks(); ++rank) {
    const Json theirs = parse_json(texts[static_cast<size_t>(rank)], group.name(rank));
    for (const auto& [what, value] : first.items()) {
      const std::string has = theirs.value(what, "nothing"), wanted = value.get<std::string>();
      if (has == wanted) continue;
      throw invalid(
          "{} has another {} than rank 0: {} instead of {}; start all ranks with the same program, model and flags",
          group.name(rank), what, has, wanted);
    }
  }
}

std::vector<int64_t> least_of_all(ProcessGroup& group, const std::vector<int64_t>& numbers) {
  const std::vector<int64_t> all = numbers_of_all(group, numbers);
  std::vector<int64_t> least = numbers;
  for (size_t i = 0; i < all.size(); ++i) least[i % least.size()] = std::min(least[i % least.size()], all[i]);
  return least;
}

}  // namespace quire
