#include "cli/batch/batch_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/line_file.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// An open file, closed when this dies.
struct OpenedFile {
  OpenedFile(const fs::path& path, int flags) : descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (descriptor < 0) throw invalid("{}: {}", path.string(), std::strerror(errno));
  }
  ~OpenedFile() { ::close(descriptor); }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;

  const int descriptor;
};

void write_all(int descriptor, std::string_view text, const std::string& what) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw no_resource("{} could not be written: {}", what, std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// The line that begins there, with its end.
void read_line_at(int descriptor, uint64_t offset, std::string& line, const std::string& what) {
  constexpr size_t kPiece = size_t{4} << 10;
  line.clear();
  for (;;) {
    const size_t before = line.size();
    line.resize(before + kPiece);
    const ssize_t count = ::pread(descriptor, line.data() + before, kPiece, static_cast<off_t>(offset + before));
    if (count <= 0) throw no_resource("{} cannot be read: {}", what, std::strerror(count < 0 ? errno : EIO));
    line.resize(before + static_cast<size_t>(count));
    if (const size_t end = line.find('\n', before); end != line.npos) return line.resize(end + 1);
  }
}

}  // namespace

BatchOutput::BatchOutput(std::string path, bool in_order, const Json& order, bool start_over)
    : path_(std::move(path)), in_order_(in_order) {
  if (path_ == "-") return;
  partial_ = std::make_unique<PartialOutput>(path_, order, start_over);
  file_ = std::make_unique<ResultFile>(partial_->output());
  found_ = file_->answered() + file_->failed();
}

const std::string& BatchOutput::warning() const {
  static const std::string none;
  return partial_ ? partial_->warning() : none;
}

std::string BatchOutput::folder() const { return partial_ ? partial_->folder().string() : std::string(); }

void BatchOutput::expect(const ResultId& id) {
  if (in_order_ && partial_) expected_.push_back(id);
}

void BatchOutput::add(const ResultId& id, std::string_view line) {
  if (!file_) {
    write_all(STDOUT_FILENO, line, "standard output");
    ++(is_answered(line) ? answered_ : failed_);
    return;
  }
  // PartialOutput keeps what has a part. The lines of the file say themselves whether they are whole.
  if (partial_->is_empty()) partial_->add("results", {.checksums = {}, .facts = Json::object()});
  file_->add(id, line);
}

void BatchOutput::finish() {
  if (!partial_) return;
  fs::path whole = partial_->output();
  if (in_order_) {
    whole = partial_->folder() / "output.ordered";
    write_in_order(whole);
  } else {
    file_->sync();
  }
  std::error_code error;
  fs::rename(whole, path_, error);
  if (error) throw no_resource("{} could not be written: {}", path_, error.message());
  file_.reset();
  partial_->finish();
  partial_.reset();
}

void BatchOutput::write_in_order(const fs::path& to) const {
  constexpr size_t kMostBuffered = size_t{1} << 20;
  const OpenedFile out(to, O_WRONLY | O_CREAT | O_TRUNC), in(file_->path(), O_RDONLY);
  std::string line, buffered;
  for (const ResultId& id : expected_) {
    const auto offset = file_->offset(id);
    if (!offset) throw invalid("{} has no result of {}", file_->path().string(), id.text());
    read_line_at(in.descriptor, *offset, line, file_->path().string());
    buffered += line;
    if (buffered.size() < kMostBuffered) continue;
    write_all(out.descriptor, buffered, to.string());
    buffered.clear();
  }
  write_all(out.descriptor, buffered, to.string());
  if (::fdatasync(out.descriptor) != 0)
    throw no_resource("{} could not be written: {}", to.string(), std::strerror(errno));
}

}  // namespace quire
