// Core Foundation on Linux: every object is an Objective-C object, and a class pointer serves as type identifier.
#import <CoreML/CoreML.h>
#include <objc/runtime.h>

const CFAllocatorRef kCFAllocatorDefault = nullptr;

namespace {
id object_of(CFTypeRef reference) { return reinterpret_cast<id>(const_cast<void*>(reference)); }
}  // namespace

CFTypeRef CFRetain(CFTypeRef object) { return [object_of(object) retain]; }
void CFRelease(CFTypeRef object) { [object_of(object) release]; }
CFIndex CFGetRetainCount(CFTypeRef object) { return static_cast<CFIndex>([object_of(object) retainCount]); }
CFTypeID CFGetTypeID(CFTypeRef object) { return reinterpret_cast<CFTypeID>(object_getClass(object_of(object))); }
Boolean CFEqual(CFTypeRef first, CFTypeRef second) { return [object_of(first) isEqual:object_of(second)]; }
