// Where a Redis or Valkey server is.
#pragma once

#include <string>
#include <string_view>

namespace quire {

struct RedisUrl {
  std::string host, port = "6379";
  int database = 0;
  std::string user, password;  // empty: none
  bool tls = false;            // the server's certificate is verified
};

bool is_redis_url(std::string_view text);  // by its scheme
// redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS. User and password may be percent-encoded, an IPv6
// address stands in brackets. Throws Error, whose message has nothing of the user and the password.
RedisUrl parse_redis_url(std::string_view text);
// As above, without user and password: for messages.
std::string public_text(const RedisUrl& url);

}  // namespace quire
