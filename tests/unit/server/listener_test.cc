// Several addresses and Unix sockets.
#include "server/http/listener.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "error_of.h"
#include "unit/server/running_server.h"
#include "unit/server/temporary_files.h"

namespace quire {
namespace {

ServerOptions on_socket(const std::string& path) {
  ServerOptions options;
  options.hosts = {};
  options.uds = path;
  return options;
}

std::string listening_error(const std::string& path) {
  return error_of([&] { Server server(on_socket(path)); });
}

TEST(Listener, ServesAUnixSocketAndRemovesIt) {
  const TemporaryFolder folder;
  const std::string path = folder.path("socket");
  {
    RunningServer running(on_socket(path));
    running.model.token_time = std::chrono::milliseconds(1);
    EXPECT_EQ(running.port(), 0);
    EXPECT_EQ(running.server->url(), "unix:" + path);
    HttpClient client(path);
    EXPECT_EQ(client.post(kChatPath, chat_body()).json()["choices"][0]["message"]["content"], "Hello");
    // A proxy in front may send any host.
    client.send("GET /health HTTP/1.1\r\nHost: chat.example.org\r\n\r\n");
    EXPECT_EQ(client.read_answer().status, 200);
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0660u);
    EXPECT_NE(listening_error(path).find("is listening"), std::string::npos);
    running.model.endless = true;
    client.send(HttpClient::request("POST", kChatPath, chat_body(R"("max_tokens": 1000000)")));
    ASSERT_TRUE(eventually([&] { return running.model.running() == 1; }));
    client.close();
    EXPECT_TRUE(eventually([&] { return running.model.running() == 0; }));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Listener, ReplacesASocketFileThatNobodyListensOn) {
  const TemporaryFolder folder;
  const std::string path = folder.path("socket");
  const int left = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(left, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(left);
  RunningServer running(on_socket(path));
  EXPECT_EQ(HttpClient(path).get("/health").status, 200);
  const std::string file = folder.write("file", "text");
  EXPECT_NE(listening_error(file).find("not a socket"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_NE(listening_error(folder.path(std::string(200, 'x'))).find("at most"), std::string::npos);
  EXPECT_NE(listening_error(folder.path("no/socket")).find("--uds"), std::string::npos);
  EXPECT_NE(listening_error("").find("--host"), std::string::npos);
}

TEST(Listener, ServesSeveralHostsOnOnePort) {
  const TemporaryFolder folder;
  ServerOptions options = on_socket(folder.path("socket"));
  options.hosts = {"127.0.0.1", "127.0.0.2"};
  RunningServer running(options);
  const std::string port = std::to_string(running.port());
  EXPECT_EQ(running.server->urls(),
            (std::vector<std::string>{"http://127.0.0.1:" + port, "http://127.0.0.2:" + port, "unix:" + options.uds}));
  HttpClient first(running.port()), second(running.port(), 0, "127.0.0.2"), third(options.uds);
  for (HttpClient* client : {&first, &second, &third}) EXPECT_EQ(client->get("/health").status, 200);
}

}  // namespace
}  // namespace quire
