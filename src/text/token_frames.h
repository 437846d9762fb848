// Added tokens in a text, kept apart from text that merely spells them: each stands in a frame of bytes that UTF-8 never
// has. DecodeOptions::frame_added writes frames, parsers/ reads them.
//
//   "\xff" "<|im_end|>" "\xfe"     a special token, which answers do not show
//   "\xfd" "<tool_call>" "\xfe"    an added token that is part of the text
#pragma once

namespace quire {

inline constexpr char kSpecialFrame = '\xff', kShownFrame = '\xfd', kFrameEnd = '\xfe';

}  // namespace quire
