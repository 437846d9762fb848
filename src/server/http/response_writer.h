// Writes one request's response: a whole reply, or a stream of events.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/answer/reply.h"
#include "server/api/live/live_feed.h"
#include "server/api/store_definition.h"
#include "server/http/channel.h"
#include "server/http/current_request.h"

namespace quire {

// The arguments must outlive it.
class ResponseWriter {
 public:
  ResponseWriter(Channel& channel, ConnectionContext& context, CurrentRequest& request)
      : channel_(channel), context_(context), request_(request) {}

  // Both return whether the connection can take another request.
  boost::asio::awaitable<bool> send(const Reply& reply);
  boost::asio::awaitable<bool> send(Reply&&) = delete;  // gcc 12 can destroy temporaries of a co_await expression twice
  // The bytes of its file, read on `disk` as the client takes them. A file that cannot be read to its end ends the connection.
  boost::asio::awaitable<bool> send_file(const StoreReply& stored, boost::asio::thread_pool& disk);
  // The first call sends the head too. After `last` nothing may follow.
  boost::asio::awaitable<bool> send_events(std::string_view events, std::string_view content_type, bool last);

  // The same for an event that other connections send too: it is not copied, and a client that does not read it within
  // 10 s is given up. They return whether the client is still there.
  boost::asio::awaitable<bool> send_live(const LiveEvent& event);
  boost::asio::awaitable<bool> end_live();

  bool begun() const { return request_.status != 0; }  // the status has been sent

 private:
  std::string stream_head(std::string_view content_type);
  std::string head(int status, std::string_view content_type,
                   const std::vector<std::pair<std::string, std::string>>& headers) const;

  Channel& channel_;
  ConnectionContext& context_;
  CurrentRequest& request_;
  std::string out_;  // the buffer of send_events
};

}  // namespace quire
