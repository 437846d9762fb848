#include "load/event_reader.h"

#include "base/error.h"

namespace quire {
namespace {
constexpr size_t kMaxEventBytes = 16 << 20;
}

void EventReader::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (after_return_ && bytes.front() == '\n') bytes.remove_prefix(1);  // the second half of \r\n
    after_return_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    if (line_.size() + data_.size() > kMaxEventBytes)
      throw invalid("the stream has an event larger than {} bytes", kMaxEventBytes);
    if (end == bytes.npos) return;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line();
  }
}

void EventReader::end_line() {
  if (line_.empty()) {
    if (has_data_) on_data_(data_);
    data_.clear();
    has_data_ = false;
  } else if (line_.starts_with("data:")) {
    std::string_view value = std::string_view(line_).substr(5);
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += value;
    has_data_ = true;
  }
  line_.clear();
}

}  // namespace quire
