// One exception personality for C++ and Objective-C in the same .mm file (clang -fobjc-runtime=gcc on Linux).
// Threads: any. Ownership: none; hidden, so that every shared object with .mm code links its own copy.
//
// clang names __gnu_objc_personality_v0 for every function with a landing pad in an Objective-C++ file, and libobjc's
// function of that name ends every C++ exception in std::terminate. This one reads both kinds of type entries:
//   NULL                -> catch (...)          receives the unwind header
//   "ClassName" string  -> @catch (ClassName *) receives the object
//   std::type_info      -> catch (T)            receives the unwind header
// `@catch (id)` and `@finally` look the same as catch (...) and are not supported: they must not be used.
#include <unwind.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <typeinfo>

extern "C" {
struct objc_object;
struct objc_class;
objc_class* objc_lookUpClass(const char*);
}

namespace {

constexpr std::uint64_t exception_class(const char (&text)[9]) {
  std::uint64_t value = 0;
  for (int i = 0; i < 8; ++i) {
    value = (value << 8) | static_cast<unsigned char>(text[i]);
  }
  return value;
}
constexpr std::uint64_t kObjc = exception_class("GNUCOBJC");
constexpr std::uint64_t kCxx = exception_class("GNUCC++\0");
constexpr std::uint64_t kCxxDependent = exception_class("GNUCC++\1");

struct ObjcException {
  _Unwind_Exception base;
  objc_object* value;
};

// libstdc++'s layout, part of its ABI since GCC 3.4.
struct CxaException {
  std::type_info* type;
  void (*destructor)(void*);
  void (*unexpected_handler)();
  void (*terminate_handler)();
  CxaException* next;
  int handler_count;
  int handler_switch_value;
  const unsigned char* action_record;
  const unsigned char* language_data;
  _Unwind_Ptr catch_temp;
  void* adjusted_pointer;
  _Unwind_Exception unwind_header;
};

enum Encoding : std::uint8_t {
  kAbsolute = 0,
  kUleb = 1,
  kUnsigned2 = 2,
  kUnsigned4 = 3,
  kUnsigned8 = 4,
  kSleb = 9,
  kSigned2 = 10,
  kSigned4 = 11,
  kSigned8 = 12,
  kPcRelative = 0x10,
  kIndirect = 0x80,
  kOmit = 0xff,
};

std::uint64_t read_uleb(const std::uint8_t*& p) {
  std::uint64_t value = 0;
  unsigned shift = 0;
  std::uint8_t byte = 0;
  do {
    byte = *p++;
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    shift += 7;
  } while (byte & 0x80);
  return value;
}

std::int64_t read_sleb(const std::uint8_t*& p) {
  std::uint64_t value = 0;
  unsigned shift = 0;
  std::uint8_t byte = 0;
  do {
    byte = *p++;
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    shift += 7;
  } while (byte & 0x80);
  if (shift < 64 && (byte & 0x40)) {
    value |= ~std::uint64_t{0} << shift;
  }
  return static_cast<std::int64_t>(value);
}

template <class T>
std::uintptr_t read_fixed(const std::uint8_t*& p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  p += sizeof value;
  return static_cast<std::uintptr_t>(value);
}

std::uintptr_t read_encoded(const std::uint8_t*& p, std::uint8_t encoding, std::uintptr_t base = 0) {
  if (encoding == kOmit) {
    return 0;
  }
  const std::uint8_t* start = p;
  std::uintptr_t value = 0;
  switch (encoding & 0xf) {
    case kAbsolute:
      value = read_fixed<std::uintptr_t>(p);
      break;
    case kUleb:
      value = read_uleb(p);
      break;
    case kUnsigned2:
      value = read_fixed<std::uint16_t>(p);
      break;
    case kUnsigned4:
      value = read_fixed<std::uint32_t>(p);
      break;
    case kUnsigned8:
      value = read_fixed<std::uint64_t>(p);
      break;
    case kSleb:
      value = static_cast<std::uintptr_t>(read_sleb(p));
      break;
    case kSigned2:
      value = read_fixed<std::int16_t>(p);
      break;
    case kSigned4:
      value = read_fixed<std::int32_t>(p);
      break;
    case kSigned8:
      value = read_fixed<std::int64_t>(p);
      break;
    default:
      __builtin_trap();
  }
  if (value == 0) {
    return 0;
  }
  value += (encoding & 0x70) == kPcRelative ? reinterpret_cast<std::uintptr_t>(start) : base;
  return (encoding & kIndirect) ? *reinterpret_cast<std::uintptr_t*>(value) : value;
}

std::int64_t encoded_size(std::uint8_t encoding) {
  switch (encoding & 7) {
    case kAbsolute:
    case kUnsigned8:
      return 8;
    case kUnsigned2:
      return 2;
    case kUnsigned4:
      return 4;
    default:
      __builtin_trap();
  }
}

// A type_info begins with a vtable address: bytes 6 and 7 are zero and byte 5 is 0x55/0x56 in a position-independent
// executable, 0x7e/0x7f (0xfe/0xff under some kernels) in a mapped library. A class name is an identifier string.
bool is_class_name(std::uintptr_t address) {
  std::uint64_t word = 0;
  std::memcpy(&word, reinterpret_cast<const void*>(address), sizeof word);
  const auto byte5 = static_cast<unsigned>((word >> 40) & 0xff);
  const bool plausible_page =
      byte5 == 0x55 || byte5 == 0x56 || byte5 == 0x7e || byte5 == 0x7f || byte5 == 0xfe || byte5 == 0xff;
  return !((word >> 48) == 0 && (word & 7) == 0 && plausible_page);
}

bool is_kind_of(objc_object* object, const char* class_name) {
  struct ClassHead {
    ClassHead* isa;
    ClassHead* superclass;
  };
  auto* wanted = reinterpret_cast<ClassHead*>(objc_lookUpClass(class_name));
  if (wanted == nullptr || object == nullptr) {
    return false;
  }
  for (auto* c = *reinterpret_cast<ClassHead**>(object); c != nullptr; c = c->superclass) {
    if (c == wanted) {
      return true;
    }
  }
  return false;
}

CxaException* cxa_header(_Unwind_Exception* exception) {
  return reinterpret_cast<CxaException*>(reinterpret_cast<char*>(exception) - offsetof(CxaException, unwind_header));
}

struct CallSite {
  bool found = false;
  std::uintptr_t landing_pad = 0;
  std::uint64_t action = 0;
};

struct Tables {
  const std::uint8_t* types = nullptr;
  std::uint8_t type_encoding = kOmit;
  const std::uint8_t* actions = nullptr;
};

CallSite find_call_site(const std::uint8_t* p, _Unwind_Context* context, Tables& tables) {
  int before_instruction = 0;
  std::uintptr_t ip = _Unwind_GetIPInfo(context, &before_instruction);
  if (!before_instruction) {
    --ip;
  }
  const std::uintptr_t function = _Unwind_GetRegionStart(context);
  std::uintptr_t pad_base = function;
  if (const std::uint8_t encoding = *p++; encoding != kOmit) {
    pad_base = read_encoded(p, encoding);
  }
  tables.type_encoding = *p++;
  if (tables.type_encoding != kOmit) {
    const std::uint64_t offset = read_uleb(p);
    tables.types = p + offset;
  }
  const std::uint8_t site_encoding = *p++;
  const std::uint64_t sites_length = read_uleb(p);
  const std::uint8_t* end = p + sites_length;
  tables.actions = end;
  CallSite site;
  while (p < end) {
    const std::uintptr_t start = read_encoded(p, site_encoding);
    const std::uintptr_t length = read_encoded(p, site_encoding);
    const std::uintptr_t pad = read_encoded(p, site_encoding);
    const std::uint64_t action = read_uleb(p);
    if (ip - function < start) {
      break;
    }
    if (ip - function < start + length) {
      site = {true, pad != 0 ? pad_base + pad : 0, action};
      break;
    }
  }
  return site;
}

struct Match {
  bool cleanup = false;
  bool handler = false;
  bool objc_typed = false;
  std::int64_t switch_value = 0;
  void* adjusted = nullptr;
};

Match match_handlers(const CallSite& site, const Tables& tables, _Unwind_Exception_Class kind,
                     _Unwind_Exception* exception, bool forced) {
  const bool is_cxx = kind == kCxx || kind == kCxxDependent;
  const std::type_info* thrown = nullptr;
  void* object = nullptr;
  if (kind == kCxxDependent) {
    object = *reinterpret_cast<void**>(cxa_header(exception));  // the primary exception's object
    thrown = (static_cast<CxaException*>(object) - 1)->type;
  } else if (kind == kCxx) {
    object = exception + 1;
    thrown = cxa_header(exception)->type;
  }
  Match match;
  match.cleanup = site.action == 0;
  if (site.action == 0) {
    return match;
  }
  const std::uint8_t* record = tables.actions + site.action - 1;
  while (true) {
    const std::uint8_t* p = record;
    const std::int64_t filter = read_sleb(p);
    const std::uint8_t* next = p;
    const std::int64_t displacement = read_sleb(p);
    if (filter == 0) {
      match.cleanup = true;
    } else if (filter > 0 && !forced) {  // negative: a dynamic exception specification, gone since C++17
      const std::uint8_t* entry = tables.types - filter * encoded_size(tables.type_encoding);
      const std::uintptr_t type = read_encoded(entry, tables.type_encoding);
      if (type == 0) {
        match.handler = true;
        match.adjusted = object;
      } else if (is_class_name(type)) {
        if (kind == kObjc &&
            is_kind_of(reinterpret_cast<ObjcException*>(exception)->value, reinterpret_cast<const char*>(type))) {
          match.handler = match.objc_typed = true;
        }
      } else if (is_cxx) {
        void* candidate = thrown->__is_pointer_p() ? *static_cast<void**>(object) : object;
        if (reinterpret_cast<const std::type_info*>(type)->__do_catch(thrown, &candidate, 1)) {
          match.handler = true;
          match.adjusted = candidate;
        }
      }
      if (match.handler) {
        match.switch_value = filter;
        return match;
      }
    }
    if (displacement == 0) {
      return match;
    }
    record = next + displacement;
  }
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) _Unwind_Reason_Code
__gnu_objc_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                          _Unwind_Exception* exception, _Unwind_Context* context) {
  if (version != 1) {
    return _URC_FATAL_PHASE1_ERROR;
  }
  const auto* data = static_cast<const std::uint8_t*>(_Unwind_GetLanguageSpecificData(context));
  if (data == nullptr) {
    return _URC_CONTINUE_UNWIND;
  }
  Tables tables;
  const CallSite site = find_call_site(data, context, tables);
  if (!site.found || site.landing_pad == 0) {
    return _URC_CONTINUE_UNWIND;
  }
  Match match = match_handlers(site, tables, kind, exception, (actions & _UA_FORCE_UNWIND) != 0);
  if (actions & _UA_SEARCH_PHASE) {
    return match.handler ? _URC_HANDLER_FOUND : _URC_CONTINUE_UNWIND;
  }
  if (!(actions & _UA_HANDLER_FRAME)) {
    if (!match.cleanup) {
      return _URC_CONTINUE_UNWIND;
    }
    match = Match{};
  }
  if (match.handler && (kind == kCxx || kind == kCxxDependent)) {
    CxaException* header = cxa_header(exception);
    header->adjusted_pointer = match.adjusted;
    header->handler_switch_value = static_cast<int>(match.switch_value);
  }
  const auto argument = match.objc_typed
                            ? reinterpret_cast<std::uintptr_t>(reinterpret_cast<ObjcException*>(exception)->value)
                            : reinterpret_cast<std::uintptr_t>(exception);
  _Unwind_SetGR(context, __builtin_eh_return_data_regno(0), argument);
  _Unwind_SetGR(context, __builtin_eh_return_data_regno(1), static_cast<std::uintptr_t>(match.switch_value));
  _Unwind_SetIP(context, site.landing_pad);
  return _URC_INSTALL_CONTEXT;
}
