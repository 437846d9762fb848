// Work that may wait for the disk, which the threads of HTTP never do.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <type_traits>

namespace quire {

// Runs act() on the pool; rethrows what it throws. `act` must outlive the call.
template <class Act>
boost::asio::awaitable<std::invoke_result_t<const Act&>> on_disk(boost::asio::thread_pool& pool, const Act& act) {
  auto work = [&]() -> boost::asio::awaitable<std::invoke_result_t<const Act&>> { co_return act(); };
  co_return co_await boost::asio::co_spawn(pool, work(), boost::asio::use_awaitable);
}

}  // namespace quire
