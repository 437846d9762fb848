#include "server/endpoints/stored/stored_json.h"

#include <charconv>

namespace quire {
namespace {

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

ListedPart read_part(std::string_view query, int default_limit, int most) {
  ListedPart part{.after = query_parameter(query, "after"), .limit = default_limit};
  if (const auto limit = query_parameter(query, "limit")) {
    const auto number = whole_number(*limit);
    if (!number || *number < 1 || *number > most)
      throw bad_request("limit", "must be a number from 1 to {}, not {}", most, describe(Json(*limit)));
    part.limit = static_cast<int>(*number);
  }
  if (const auto order = query_parameter(query, "order")) {
    if (*order != "asc" && *order != "desc")
      throw bad_request("order", "must be asc or desc, not {}", describe(Json(*order)));
    part.ascending = *order == "asc";
  }
  return part;
}

int64_t read_lifetime(std::string_view field, std::string_view anchor, std::string_view seconds) {
  constexpr int64_t kShortest = 3600, kLongest = 2'592'000;
  if (anchor != "created_at")
    throw bad_request(fmt::format("{}.anchor", field), "must be created_at, not {}", describe(Json(anchor)));
  const auto number = whole_number(seconds);
  if (!number || *number < kShortest || *number > kLongest)
    throw bad_request(fmt::format("{}.seconds", field), "must be a number from {} to {}, not {}", kShortest, kLongest,
                      describe(Json(seconds)));
  return *number;
}

std::string valid_text(std::string_view text) { return Json::parse(dump(Json(text))).get<std::string>(); }

}  // namespace quire
