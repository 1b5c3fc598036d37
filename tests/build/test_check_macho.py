"""The gate of the macOS module passes a sound module and names every planted fault."""

from __future__ import annotations

import pathlib

import pytest
from conftest import Linker, linux_only

pytestmark = linux_only

# Every framework once, a guarded API newer than the deployment target, exceptions of both languages, and libc++.
SOUND = """
#import <CoreML/CoreML.h>
#include <functional>
#include <stdexcept>
extern "C" __attribute__((visibility("default"))) void PyInit_probe();
static void call(const std::function<void()>& body) { body(); }
void PyInit_probe() {
  @autoreleasepool {
    @try {
      NSError* error = nil;
      NSURL* url = [NSURL fileURLWithPath:@"model.mlmodelc"];
      MLModelConfiguration* configuration = [[MLModelConfiguration alloc] init];
      if (@available(macOS 15.0, *)) {
        configuration.functionName = NSStringFromClass(NSClassFromString(@"MLState") ?: [MLState class]);
      }
      [MLModel modelWithContentsOfURL:url configuration:configuration error:&error];
      [configuration release];
      NSDictionary* attributes = @{(id)kCVPixelBufferIOSurfacePropertiesKey : @{}};
      CVPixelBufferRef buffer = nullptr;
      CVPixelBufferCreate(kCFAllocatorDefault, 4, 4, kCVPixelFormatType_OneComponent16Half,
                          (CFDictionaryRef)attributes, &buffer);
      call([&] { IOSurfaceLock(CVPixelBufferGetIOSurface(buffer), kIOSurfaceLockReadOnly, nullptr); });
      MORE
    } @catch (NSException* exception) {
      throw std::runtime_error(exception.reason.UTF8String);
    }
  }
}
"""


def sound(*, declare: str = "", more: str = "") -> str:
    return declare + "\n" + SOUND.replace("MORE", more)


def failures(module: pathlib.Path, sdk: pathlib.Path) -> list[str]:
    import check_macho

    return check_macho.failures(module, sdk)


def test_a_sound_module_passes(link: Linker) -> None:
    assert failures(link(sound()), link.sdk) == []


PRIVATE_METHOD = (
    "#import <Foundation/Foundation.h>\n@interface NSObject (Private)\n- (void)_privateThing:(int)x;\n@end\n"
)
PLANTED = {
    "private selector": (
        sound(declare=PRIVATE_METHOD, more="[url _privateThing:1];"),
        (),
        "selector _privateThing:",
    ),
    "newer class without a guard's weakness": (
        sound(declare='extern "C" int late asm("_OBJC_CLASS_$_MLComputePlan");', more="late = 1;"),
        (),
        "_OBJC_CLASS_$_MLComputePlan: newer than the deployment target and not weak",
    ),
    "private function of libSystem": (
        sound(declare='extern "C" int csops(int, unsigned, void*, unsigned long);', more="csops(0, 0, nullptr, 0);"),
        (),
        "_csops: no public header",
    ),
    "private class by name": (
        sound(more='if (NSClassFromString(@"MLSecretEngine") != nil) return;'),
        (),
        "string MLSecretEngine: looks like a class",
    ),
    "lookup at run time": (
        sound(declare="#include <dlfcn.h>", more='dlsym(RTLD_DEFAULT, "anything");'),
        (),
        "_dlsym: looks names up",
    ),
    "symbol that no library exports": (
        sound(declare='extern "C" void nowhere();', more="nowhere();"),
        ("-Wl,-U,_nowhere",),
        "_nowhere: no library exports it",
    ),
    "second export": (
        sound(declare='extern "C" __attribute__((visibility("default"))) void leaked() {}'),
        (),
        "expected exactly _PyInit_probe",
    ),
    "library loaded for nothing": (sound(), ("-Wl,-needed_framework,Extra",), "Extra: loaded, and nothing is imported"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_named(name: str, link: Linker, tmp_path: pathlib.Path) -> None:
    import make_minisdk

    source, flags, expected = PLANTED[name]
    extra = tmp_path / "Extra.framework"
    extra.mkdir()
    extra_path = "/System/Library/Frameworks/Extra.framework/Versions/A/Extra"
    (extra / "Extra.tbd").write_text(make_minisdk.stub_text(extra_path, ["_extra"]))
    found = failures(link(source, f"-F{tmp_path}", *flags), link.sdk)
    assert len(found) == 1, found
    assert expected in found[0]


def test_another_deployment_target_is_named(link: Linker) -> None:
    assert failures(link(sound(), target="15.0"), link.sdk)[0] == "minimum OS 15.0, expected macOS 14.0"


def test_a_library_in_place_of_a_bundle_is_named(link: Linker) -> None:
    assert "not MH_BUNDLE" in failures(link(sound(), kind="-dynamiclib"), link.sdk)[0]


def test_a_changed_byte_breaks_the_signature(link: Linker) -> None:
    module = link(sound())
    image = bytearray(module.read_bytes())
    place = image.index(b"model.mlmodelc")
    image[place] ^= 1
    module.write_bytes(image)
    assert failures(module, link.sdk) == ["no valid ad-hoc signature: arm64 kernels refuse the image"]
