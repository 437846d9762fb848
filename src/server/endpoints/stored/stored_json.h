// What requests for files and for batches have alike.
#pragma once

#include <string>
#include <string_view>

#include "server/api/answer/answer.h"
#include "server/api/store_definition.h"
#include "server/batch/file_store.h"

namespace quire {

// after, limit and order of a list. Throws ApiError.
ListedPart read_part(std::string_view query, int default_limit, int most);

// Seconds of expires_after: the anchor must be created_at, the seconds from an hour to 30 days. Throws ApiError that names the
// field.
int64_t read_lifetime(std::string_view field, std::string_view anchor, std::string_view seconds);

// With what is not UTF-8 replaced.
std::string valid_text(std::string_view text);

template <class Row, class ToJson>
StoreReply list_json(const ListedRows<Row>& listed, const ToJson& to_json) {
  Json data = Json::array();
  for (const Row& row : listed.rows) data.push_back(to_json(row));
  const Json first = data.empty() ? Json() : data.front()["id"], last = data.empty() ? Json() : data.back()["id"];
  return Reply{.body = dump({{"object", "list"},
                             {"data", std::move(data)},
                             {"has_more", listed.more},
                             {"first_id", first},
                             {"last_id", last}})};
}

}  // namespace quire
