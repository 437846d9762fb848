// Downloads one file in several ranges at a time, and goes on where an earlier download was cut.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "hub/http_request.h"

namespace quire {

struct RemoteFile {
  std::string url;
  std::string etag;   // identifies the content
  uint64_t size = 0;  // bytes
};

// Where a file is stored until its hash was checked, and the journal of its ranges.
struct PartialFile {
  explicit PartialFile(const std::filesystem::path& whole)
      : content(whole.string() + ".quire.incomplete"), journal(whole.string() + ".quire.ranges") {}
  std::filesystem::path content, journal;

  void remove() const;
  // Bytes of the disk that the content has already.
  uint64_t allocated() const;
};

// An answer that no further try changes: its status is not 2xx, a redirect, nor one that may pass.
using RefusalHandler = std::function<void(const HttpReply&)>;

// When it returns, the partial file has `file.size` bytes, whose hash is the caller's to check. An error or an exception
// of access.check() leaves the bytes that came, and their journal. connections: at a time, at least 1. The caller holds the
// file's lock. done: told how many bytes there are, ten times a second. refuse: throws for an answer with which the
// download cannot go on. Throws Error (kResource: the disk is full, no answer after several tries; kInvalid: the server
// sends another size).
void download_ranges(const HttpAccess& access, const RemoteFile& file, const PartialFile& partial, int connections,
                     const std::function<void(uint64_t)>& done, const RefusalHandler& refuse);

}  // namespace quire
