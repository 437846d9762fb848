// What the connections of a server share.
#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>

#include "server/api/models.h"
#include "server/api/task.h"
#include "server/http/api_keys.h"
#include "server/http/local_hosts.h"
#include "server/http/server.h"

namespace spdlog {
class logger;
}

namespace quire {

class BatchQueue;
class SpanExporter;
class Tls;

inline constexpr size_t kSmallBody = 64 << 10;  // takes a few milliseconds to prepare
inline constexpr size_t kSparedPart =
    8;  // large bodies leave an eighth of ServerOptions::max_bodies_bytes to small ones

struct ConnectionContext {
  const ServerOptions& options;
  const Tls* tls;  // nullptr: plain HTTP
  const ApiKeys& keys;
  const LocalHosts& local_hosts;
  spdlog::logger& request_log;
  SpanExporter* spans;  // nullptr: requests are not traced
  ByteBudget &bodies, &replies;
  // They parse and tokenize. Large bodies, and small ones that take much memory, have a thread of their own: one takes a
  // second or two, and small requests must not wait for it. Two threads in all, because the cores belong to the engine.
  // Each works on one body at a time, so the limits of working memory hold for all of them together.
  boost::asio::thread_pool &small_bodies, &large_bodies;
  boost::asio::thread_pool& disk;  // reads and writes files of ServerOptions::files_dir
  TaskRunner& tasks;
  std::atomic<BatchQueue*> batches{nullptr};   // nullptr: the server keeps no files
  std::atomic<const Models*> models{nullptr};  // nullptr: they are still loading
  std::atomic<bool> draining{false};           // the server is about to stop: each connection's next answer is its last
  std::atomic<bool> stopping{false};           // finish what has begun, begin nothing else
  std::atomic<bool> aborting{false};           // finish nothing either
};

}  // namespace quire
