// The part of Foundation that the product uses, declared by us, for the build without Apple's SDK only. On a Mac the
// system's own headers are used and this folder is not looked at. Threads and ownership: as Apple documents each class.
#pragma once

#include <CoreFoundation/CoreFoundation.h>
#include <Foundation/FoundationCollections.h>
#include <Foundation/FoundationObjects.h>
#include <Foundation/FoundationSystem.h>
#include <Foundation/FoundationValues.h>
