#include "cli/calibration/rows_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/files/write_all.h"

namespace quire {
namespace {

int open_without_name(const std::filesystem::path& folder) {
  std::string path = (folder / "quire-rows-XXXXXX").string();
  const int descriptor = ::mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0)
    throw no_resource("a file for hidden states cannot be created in {}: {}", folder.string(), std::strerror(errno));
  ::unlink(path.c_str());
  return descriptor;
}

}  // namespace

RowsFile::RowsFile(const std::filesystem::path& folder, int width)
    : folder_(folder), stride_(static_cast<size_t>(width) * sizeof(float)), descriptor_(open_without_name(folder)) {}

RowsFile::~RowsFile() { ::close(descriptor_); }

uint64_t RowsFile::offset_of(int first_row) const { return (step_ + static_cast<size_t>(first_row)) * stride_; }

void RowsFile::send(std::span<const Rows> parts, int first_row, int rows) {
  assert(row_bytes(parts) <= stride_);
  block_.resize(stride_ * static_cast<size_t>(rows));
  pack_rows(parts, rows, block_, stride_);
  if (const int error = write_all_at(descriptor_, block_, offset_of(first_row)); error != 0)
    throw no_resource("the hidden states of the calibration text cannot be written in {}: {}", folder_.string(),
                      std::strerror(error));
  sent_bytes_ += row_bytes(parts) * static_cast<size_t>(rows);
}

void RowsFile::receive(std::span<const Rows> parts, int first_row, int rows) {
  block_.resize(stride_ * static_cast<size_t>(rows));
  for (size_t done = 0; done < block_.size();) {
    const ssize_t got = ::pread(descriptor_, block_.data() + done, block_.size() - done,
                                static_cast<off_t>(offset_of(first_row) + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw no_resource("the hidden states of the calibration text in {} cannot be read: {}", folder_.string(),
                        got < 0 ? std::strerror(errno) : "they end early");
    done += static_cast<size_t>(got);
  }
  unpack_rows(block_, stride_, parts, rows);
}

}  // namespace quire
