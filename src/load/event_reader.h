// Reads server-sent events from a stream of bytes.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace quire {

class EventReader {
 public:
  // `on_data` receives the data of each event; several data lines are joined by \n. Events without data are skipped.
  explicit EventReader(std::function<void(std::string_view)> on_data) : on_data_(std::move(on_data)) {}

  // Accepts any split of the stream. Lines end in \n, \r\n or \r. Throws Error if an event is larger than 16 MiB.
  void feed(std::string_view bytes);

 private:
  void end_line();

  std::function<void(std::string_view)> on_data_;
  std::string line_, data_;
  bool has_data_ = false, after_return_ = false;
};

}  // namespace quire
