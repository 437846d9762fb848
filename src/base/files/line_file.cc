#include "base/files/line_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace quire {

LineFile::LineFile(const std::string& path, std::string what) : what_(std::move(what)), buffer_(size_t{64} << 10) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw not_found("{}: {}", what_, std::strerror(errno));
  struct stat info {};
  if (::fstat(fd_, &info) == 0 && (S_ISREG(info.st_mode) || S_ISFIFO(info.st_mode))) return;
  ::close(fd_);
  throw invalid("{} is neither a file nor a pipe", what_);
}

LineFile::~LineFile() { ::close(fd_); }

// Returns false at the end of the file.
bool LineFile::fill() {
  for (;;) {
    const ssize_t count = ::read(fd_, buffer_.data(), buffer_.size());
    if (count >= 0) {
      at_ = 0;
      end_ = static_cast<size_t>(count);
      return count > 0;
    }
    if (errno == EAGAIN) {  // a pipe whose writer has not written yet
      pollfd ready{fd_, POLLIN, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      throw invalid("{}: {}", what_, std::strerror(errno));
    }
  }
}

bool LineFile::is_ready() const {
  pollfd ready{fd_, POLLIN, 0};
  return at_ != end_ || ::poll(&ready, 1, 0) != 0;
}

LineFile::Line LineFile::read(std::string& line, size_t longest, bool skips) {
  line.clear();
  bool any = false, is_too_long = false;
  while (!is_too_long || skips) {
    if (at_ == end_ && !fill()) break;
    any = true;
    const char *const begin = buffer_.data() + at_, *const end = buffer_.data() + end_;
    const char* const stop = std::find(begin, end, '\n');
    const auto size = static_cast<size_t>(stop - begin);
    const size_t kept = std::min(size, longest - line.size());
    line.append(begin, kept);
    is_too_long = is_too_long || kept < size;
    at_ += size + (stop == end ? 0 : 1);
    if (stop != end) break;
  }
  number_ += any ? 1 : 0;
  return !any ? Line::kEnd : is_too_long ? Line::kTooLong : Line::kWhole;
}

LineFile::Line LineFile::next_or_skip(std::string& line, size_t longest) { return read(line, longest, true); }

bool LineFile::next(std::string& line, size_t longest) {
  const Line found = read(line, longest, false);
  if (found == Line::kTooLong) throw invalid("{}:{}: the line has more than {} bytes", what_, number_, longest);
  return found == Line::kWhole;
}

}  // namespace quire
