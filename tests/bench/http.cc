// The cost of the HTTP layer alone, with a scripted model that takes no time:
//
//   bench_http [STREAMS [TOKENS [STEP_MICROSECONDS]]]
//
// Streams TOKENS tokens to each of STREAMS concurrent clients, one token each per step, then holds 2,000 idle
// keep-alive connections, plain and through TLS. Run it under `taskset -c 0` to give everything, clients included, one
// core.
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <vector>

#include "unit/server/running_server.h"
#include "unit/server/temporary_files.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

double resident_mib() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return static_cast<double>(pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE))) / (1 << 20);
}

// A server that measures the CPU time of its HTTP thread.
class MeasuredServer {
 public:
  explicit MeasuredServer(ServerOptions options) {
    spdlog::set_level(spdlog::level::off);
    options.port = 0;
    server_ = std::make_unique<Server>(model, options);
    thread_ = std::thread([this] { server_->run(); });
  }
  ~MeasuredServer() {
    server_->stop();
    server_->stop();
    thread_.join();
  }
  uint16_t port() const { return server_->port(); }
  double cpu_seconds() {
    clockid_t clock{};
    timespec time{};
    pthread_getcpuclockid(thread_.native_handle(), &clock);
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

  ScriptedCompleter model;

 private:
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

// Reads until every client has its last chunk; returns the number of bytes.
size_t read_streams(const std::vector<std::unique_ptr<HttpClient>>& clients) {
  constexpr std::string_view kEnd = "[DONE]\n\n\r\n0\r\n\r\n";
  std::vector<pollfd> open;
  std::vector<std::string> tails(clients.size());
  for (const auto& client : clients) open.push_back({client->fd(), POLLIN, 0});
  std::vector<char> bytes(1 << 18);
  size_t total = 0;
  for (size_t left = clients.size(); left > 0;) {
    ::poll(open.data(), open.size(), -1);
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i].revents == 0) continue;
      const ssize_t n = ::recv(open[i].fd, bytes.data(), bytes.size(), 0);
      if (n <= 0) std::exit(1);
      total += static_cast<size_t>(n);
      const size_t tail = std::min(static_cast<size_t>(n), kEnd.size());
      tails[i].append(bytes.data() + n - tail, tail);
      tails[i].erase(0, tails[i].size() - std::min(tails[i].size(), kEnd.size()));
      if (tails[i] != kEnd) continue;
      open[i].fd = -1;
      --left;
    }
  }
  return total;
}

void stream(int streams, int tokens, std::chrono::microseconds step) {
  ServerOptions options;
  options.max_running = streams;
  options.max_stream_bytes = size_t{1} << 30;  // the model is faster than any reader
  MeasuredServer server(options);
  server.model.answer = " token";
  server.model.endless = true;
  server.model.token_time = step;
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < streams; ++i) clients.push_back(std::make_unique<HttpClient>(server.port()));
  const std::string request =
      HttpClient::request("POST", kChatPath, chat_body(R"("stream": true, "max_tokens": )" + std::to_string(tokens)));
  const double cpu_before = server.cpu_seconds();
  const auto begun = Clock::now();
  for (const auto& client : clients) client->send(request);
  const size_t bytes = read_streams(clients);
  const double wall = seconds(Clock::now() - begun), cpu = server.cpu_seconds() - cpu_before;
  const double all = static_cast<double>(streams) * tokens;
  std::printf("%d streams x %d tokens: %.0f tokens/s, %.0f MB/s; HTTP thread %.0f%% busy: %.0f tokens/s of its time\n",
              streams, tokens, all / wall, static_cast<double>(bytes) / wall / 1e6, 100 * cpu / wall, all / cpu);
}

void idle(const char* name, const ServerOptions& options, int connections) {
  MeasuredServer server(options);
  const bool tls = !options.ssl_certfile.empty();
  const auto open = [&] {
    auto client = std::make_unique<HttpClient>(server.port());
    if (tls && !client->start_tls()) std::exit(1);
    if (client->get("/health").status != 200) std::exit(1);
    if (tls) client->forget_tls();  // so that the client's own session is not measured
    return client;
  };
  std::vector<std::unique_ptr<HttpClient>> clients;
  clients.reserve(static_cast<size_t>(connections));
  for (int i = 0; i < 20; ++i) clients.push_back(open());
  const double before = resident_mib();
  while (std::cmp_less(clients.size(), connections)) clients.push_back(open());
  std::printf("%d idle connections, %s: %.1f MiB\n", connections, name, resident_mib() - before);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  const auto argument = [&](int index, int otherwise) { return argc > index ? std::atoi(argv[index]) : otherwise; };
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  quire::stream(argument(1, 32), argument(2, 4000), std::chrono::microseconds(argument(3, 400)));
  quire::idle("plain", {}, 2000);
  const quire::TemporaryFolder folder;
  quire::write_certificate(folder, "bench");
  quire::ServerOptions secure;
  secure.ssl_certfile = folder.path("cert.pem");
  secure.ssl_keyfile = folder.path("key.pem");
  quire::idle("through TLS", secure, 2000);
}
