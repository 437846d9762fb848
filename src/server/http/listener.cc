#include "server/http/listener.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr mode_t kSocketMode = 0660;

tcp::endpoint resolve(const asio::any_io_executor& executor, const std::string& host, uint16_t port) {
  ErrorCode error;
  const auto found = tcp::resolver(executor).resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) throw invalid("--host {}: {}", host, error.message());
  return found.begin()->endpoint();
}

ino_t inode_of(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

// Makes place for a new socket file where a server that has crashed left one.
void remove_stale(const asio::any_io_executor& executor, const std::string& path,
                  const asio::local::stream_protocol::endpoint& endpoint) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) throw invalid("--uds {}: this file exists and is not a socket", path);
  ErrorCode error;
  asio::local::stream_protocol::socket probe(executor);
  probe.connect(endpoint, error);
  if (error != asio::error::connection_refused) throw no_resource("--uds {}: a server is listening there", path);
  ::unlink(path.c_str());
}

}  // namespace

Listener Listener::on_tcp(const asio::any_io_executor& executor, const std::string& host, uint16_t port,
                          bool dual_stack) {
  const tcp::endpoint endpoint = resolve(executor, host, port);
  const auto check = [&](const ErrorCode& error) {
    if (!error) return;
    if (error == asio::error::address_in_use) {
      throw no_resource("{}:{} is in use; choose another --port, or 0 for any free one", host, port);
    }
    throw invalid("cannot listen on {}:{}: {}", host, port, error.message());
  };
  Listener listener(executor);
  Acceptor& acceptor = listener.acceptor_;
  ErrorCode error;
  check(acceptor.open(endpoint.protocol(), error));
  check(acceptor.set_option(asio::socket_base::reuse_address(true), error));
  if (endpoint.address().is_v6() && !dual_stack) check(acceptor.set_option(asio::ip::v6_only(true), error));
  check(acceptor.bind(endpoint, error));
  check(acceptor.listen(asio::socket_base::max_listen_connections, error));
  tcp::endpoint bound = endpoint;  // with the port that was free
  ::socklen_t size = static_cast<::socklen_t>(bound.capacity());
  ::getsockname(acceptor.native_handle(), bound.data(), &size);
  listener.address_ =
      bound.address().is_v6() ? fmt::format("[{}]", bound.address().to_string()) : bound.address().to_string();
  listener.port_ = bound.port();
  listener.loopback_ = bound.address().is_loopback();
  return listener;
}

Listener Listener::on_unix_socket(const asio::any_io_executor& executor, const std::string& path) {
  const auto check = [&](const ErrorCode& error) {
    if (error) throw invalid("--uds {}: {}", path, error.message());
  };
  constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() > kMaxPath) throw invalid("--uds {}: the path of a socket has at most {} bytes", path, kMaxPath);
  const asio::local::stream_protocol::endpoint endpoint(path);
  remove_stale(executor, path, endpoint);
  Listener listener(executor);
  ErrorCode error;
  check(listener.acceptor_.open(endpoint.protocol(), error));
  check(listener.acceptor_.bind(endpoint, error));
  listener.address_ = path;
  listener.inode_ = inode_of(path);
  // Before listen(): nobody can connect until the mode is right.
  if (::chmod(path.c_str(), kSocketMode) != 0) check(ErrorCode(errno, boost::system::system_category()));
  check(listener.acceptor_.listen(asio::socket_base::max_listen_connections, error));
  return listener;
}

Listener::Listener(Listener&& other) noexcept
    : acceptor_(std::move(other.acceptor_)),
      address_(std::move(other.address_)),
      port_(other.port_),
      loopback_(other.loopback_),
      inode_(std::exchange(other.inode_, 0)) {}

std::string Listener::url(std::string_view scheme) const {
  return port_ > 0 ? fmt::format("{}://{}:{}", scheme, address_, port_) : fmt::format("unix:{}", address_);
}

void Listener::close() {
  if (inode_ != 0 && inode_of(address_) == inode_) ::unlink(address_.c_str());
  inode_ = 0;
  ErrorCode ignored;
  acceptor_.close(ignored);
}

}  // namespace quire
