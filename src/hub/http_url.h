// URLs that may be asked, and where a redirect leads.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// "https://host:port" in lower case. Throws Error (kInvalid) unless the URL is https, or http of this machine (127.0.0.1,
// ::1, localhost). With allow_http, any http.
std::string checked_origin(const std::string& url, bool allow_http);

// The URL that a Location header of `base`'s answer means. Throws Error (kInvalid) if it is no URL, not allowed as above,
// or leads from https to http.
std::string redirected_url(const std::string& base, const std::string& location, bool allow_http);

// A name as a part of a URL's path. keep_slashes: of several parts.
std::string escape_path(std::string_view text, bool keep_slashes);

// A URL without its query, which may hold a signature: for messages.
std::string shown_url(std::string_view url);

}  // namespace quire
