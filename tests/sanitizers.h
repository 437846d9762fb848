// Which sanitizer the tests are compiled with: gcc and clang say it in different ways.
#pragma once

namespace quire::testing {

#if defined(__has_feature)
#define QUIRE_HAS_FEATURE(name) __has_feature(name)
#else
#define QUIRE_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || QUIRE_HAS_FEATURE(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__) || QUIRE_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

#undef QUIRE_HAS_FEATURE

// Of the rounds of a test that differ only in their random numbers: a quarter under a sanitizer, which makes them ten times
// as slow, and looks at what they access, not at what they compute.
constexpr unsigned rounds(unsigned all) { return kAddressSanitizer || kThreadSanitizer ? (all + 3) / 4 : all; }

}  // namespace quire::testing
