#include "redis/redis_connection.h"

#include <fmt/format.h>

#include <iterator>

#include "base/error.h"
#include "base/text/quote.h"

namespace quire {
namespace {

constexpr size_t kReceived = 64 << 10;

}  // namespace

RedisConnection::RedisConnection(const RedisUrl& server, size_t longest_reply, Deadline deadline)
    : stream_(server, deadline), replies_(longest_reply), received_(kReceived) {
  const auto expect_ok = [&](std::string_view what, std::initializer_list<std::string_view> words) {
    const RedisReply& reply = ask(words, deadline);
    if (reply.kind != RedisReply::kStatus) throw no_resource("{} failed: {}", what, quote(reply.text));
  };
  if (!server.user.empty()) {
    expect_ok("logging in", {"AUTH", server.user, server.password});
  } else if (!server.password.empty()) {
    expect_ok("logging in", {"AUTH", server.password});
  }
  if (server.database != 0) expect_ok("selecting the database", {"SELECT", std::to_string(server.database)});
  expect_ok("the first command", {"PING"});  // a server that wants a login says so here
}

void RedisConnection::add(std::initializer_list<std::string_view> words) {
  fmt::format_to(std::back_inserter(commands_), "*{}\r\n", words.size());
  for (const std::string_view word : words) {
    fmt::format_to(std::back_inserter(commands_), "${}\r\n", word.size());
    commands_.append(word).append("\r\n");
  }
}

void RedisConnection::send(Deadline deadline) {
  stream_.send(commands_, deadline);
  commands_.clear();
}

const RedisReply& RedisConnection::receive(Deadline deadline) {
  for (;;) {
    if (const RedisReply* const reply = replies_.next()) return *reply;
    const size_t bytes = stream_.receive(received_, deadline);
    replies_.feed({received_.data(), bytes});
  }
}

const RedisReply& RedisConnection::ask(std::initializer_list<std::string_view> words, Deadline deadline) {
  add(words);
  send(deadline);
  return receive(deadline);
}

}  // namespace quire
