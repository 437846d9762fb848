#include "parsers/constraint_parts.h"

#include <iterator>

namespace quire {
namespace {

using Kind = ConstraintSource::Kind;
using Parts = std::vector<ConstraintSource>;

}  // namespace

void append(Parts& parts, Parts more) {
  parts.insert(parts.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

Parts MarkTexts::split(std::string_view text) const {
  Parts parts;
  std::string run;
  const auto end_run = [&] {
    if (!run.empty()) parts.push_back({.kind = Kind::kText, .text = std::exchange(run, {})});
  };
  while (!text.empty()) {
    std::string_view longest;
    for (const std::string& token : tokens_) {
      if (text.starts_with(token) && token.size() > longest.size()) longest = token;
    }
    if (longest.empty()) {
      run += text.front();
      text.remove_prefix(1);
      continue;
    }
    end_run();
    parts.push_back({.kind = Kind::kToken, .text = std::string(longest)});
    text.remove_prefix(longest.size());
  }
  end_run();
  return parts;
}

ConstraintSource MarkTexts::text_without(const std::vector<std::string_view>& marks) const {
  ConstraintSource text{.kind = Kind::kTextWithout};
  for (const std::string_view mark : marks) {
    if (!mark.empty() && !tokens_.contains(mark)) text.choices.emplace_back(mark);
  }
  return text;
}

}  // namespace quire
