// A server without a model: it answers /v1/completions as a script says and records when. The load generator's
// measurements are compared with its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace quire {

// How one request is answered: max_tokens tokens, one per event.
struct ScriptedAnswer {
  enum class Ending {
    kWhole,
    kRefused,       // HTTP 503 instead of a stream
    kCut,           // the connection closes halfway
    kError,         // an error event halfway
    kShort,         // claims to be whole, with one token too few
    kCloseQuietly,  // whole; then the connection closes without "Connection: close"
  };
  std::chrono::microseconds first{0}, gap{0};  // delay before the first token, before each later one
  int cached_tokens = -1;                      // reported in the usage; -1: not reported
  Ending ending = Ending::kWhole;
};

// When the server read a request and wrote each token of its answer.
struct ScriptedTimes {
  std::chrono::steady_clock::time_point received;
  std::vector<std::chrono::steady_clock::time_point> tokens;
};

class ScriptedServer {
 public:
  // `script` is called on the server's thread, with the number of the request in order of arrival. A serial server
  // answers one request after another.
  ScriptedServer(std::function<ScriptedAnswer(int request)> script, bool serial);
  ~ScriptedServer();

  std::string url() const;
  // Of all requests that were answered, in order of arrival.
  std::vector<ScriptedTimes> times() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
