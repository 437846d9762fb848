// One client's connection: reads requests and answers each in turn.
//
// RequestReader reads, early_reply() turns requests away before their body comes, Service says what to do, and
// ResponseWriter writes. The connection joins them, and notices a client that leaves while the engine works for it.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "server/api/models.h"
#include "server/api/routes.h"
#include "server/http/channel.h"
#include "server/http/connection_context.h"
#include "server/http/current_request.h"
#include "server/http/response_writer.h"

namespace quire {

// Lives on its socket's executor, a strand; drain and abort may be called from any thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // guarded: only requests that context.local_hosts allows are answered. trusted: without keys, its client may do what
  // ApiDefinition::for_operators says.
  Connection(Socket socket, bool guarded, bool trusted, ConnectionContext& context);
  ~Connection();

  boost::asio::awaitable<void> run();  // until the connection is closed

  void drain();  // the server stops: close if no request is under way
  void abort();  // cancel the request under way

 private:
  using ErrorCode = boost::system::error_code;
  using Clock = CurrentRequest::Clock;

  // All return whether the connection can take another request.
  boost::asio::awaitable<bool> handshake();
  boost::asio::awaitable<bool> wait_for_request();
  boost::asio::awaitable<bool> serve();
  boost::asio::awaitable<bool> answer(HttpRequest& http, ResponseWriter& writer);
  boost::asio::awaitable<Job> prepare(const ApiDefinition& api, const HttpRequest& http);
  boost::asio::awaitable<void> load(size_t model);
  boost::asio::awaitable<bool> generate(Job job, ResponseWriter& writer);
  boost::asio::awaitable<bool> stream(Job& job, ResponseWriter& writer);
  boost::asio::awaitable<bool> collect(Job& job, ResponseWriter& writer);
  boost::asio::awaitable<bool> run_task(Job job, ResponseWriter& writer);
  boost::asio::awaitable<bool> show_live(LiveFeed& feed, ResponseWriter& writer);
  boost::asio::awaitable<bool> receive_upload(const StoreDefinition& store, RequestReader& reader,
                                              ResponseWriter& writer);
  boost::asio::awaitable<StoreReply> answer_stored(const Route& route, const HttpRequest& http);

  boost::asio::awaitable<void> refuse(const ApiError& error);

  // Waits until the engine has something, the client leaves or the request's time is up. Returns why the request
  // fails, if it does.
  boost::asio::awaitable<std::optional<ApiError>> next_pieces(std::vector<Piece>& pieces);

  void watch();
  void on_readable();
  void on_half_closed();
  void on_gone();
  void wake_up();

  ConnectionContext& context_;
  const bool guarded_, trusted_;
  const std::shared_ptr<Channel> channel_;
  boost::asio::steady_timer wake_;  // a condition variable: cancelled when the exchange has something
  bool woken_ = false;
  bool idle_ = true;       // between requests
  bool watching_ = false;  // for the client's end, while its answer is generated
  bool watch_waits_ = false;
  bool half_closed_ = false;  // the client sends nothing more
  std::optional<CurrentRequest> request_;
};

}  // namespace quire
