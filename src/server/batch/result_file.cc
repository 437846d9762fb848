#include "server/batch/result_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/write_all.h"

namespace quire {
namespace {

constexpr std::string_view kResultBegin = R"({"id":")";

// nullopt: not a whole result.
std::optional<ResultId> id_of_result(std::string_view line) {
  if (!line.starts_with(kResultBegin) || !line.ends_with('}')) return std::nullopt;
  return parse_result_id(line.substr(kResultBegin.size(), kResultIdBytes));
}

}  // namespace

ResultFile::ResultFile(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw invalid("{} cannot be written: {}", path_.string(), std::strerror(errno));
  try {
    read();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

ResultFile::~ResultFile() { ::close(descriptor_); }

void ResultFile::read() {
  std::vector<char> buffer(size_t{1} << 20);
  std::string line;
  bool is_whole = true;
  while (is_whole) {
    const ssize_t count = ::read(descriptor_, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw no_resource("{} cannot be read: {}", path_.string(), std::strerror(errno));
    if (count == 0) break;
    for (std::string_view rest(buffer.data(), static_cast<size_t>(count)); !rest.empty() && is_whole;) {
      const size_t end = rest.find('\n');
      line.append(rest.substr(0, end));
      if (end == rest.npos) break;
      rest.remove_prefix(end + 1);
      const auto id = id_of_result(line);
      is_whole = id && !has(*id);
      if (is_whole) note(*id, line);
      line.clear();
    }
  }
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes_)) != 0)
    throw no_resource("{} could not be written: {}", path_.string(), std::strerror(errno));
}

// line: without its end.
void ResultFile::note(const ResultId& id, std::string_view line) {
  offsets_.emplace(id, bytes_);
  answered_ += is_answered(line) ? 1 : 0;
  bytes_ += line.size() + 1;
}

void ResultFile::add(const ResultId& id, std::string_view line) {
  if (const int reason = write_all_at(descriptor_, std::as_bytes(std::span(line)), bytes_); reason != 0) {
    if (::ftruncate(descriptor_, static_cast<off_t>(bytes_)) != 0) {
    }  // the next reader cuts it off
    throw no_resource("{} could not be written: {}", path_.string(), std::strerror(reason));
  }
  note(id, line.substr(0, line.size() - 1));
}

void ResultFile::sync() {
  if (::fdatasync(descriptor_) != 0)
    throw no_resource("{} could not be written: {}", path_.string(), std::strerror(errno));
}

std::optional<uint64_t> ResultFile::offset(const ResultId& id) const {
  const auto found = offsets_.find(id);
  if (found == offsets_.end()) return std::nullopt;
  return found->second;
}

}  // namespace quire
